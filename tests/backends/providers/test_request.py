"""What reaches LiteLLM: listed fields, a target's parameters, credentials that are allowed, and no environment."""

from pathlib import Path
from typing import Any

import pytest

from backends.providers.base import CHAT, COMPLETIONS, EMBEDDINGS, Order
from backends.providers.credentials import Credentials
from backends.providers.environment import withdraw
from backends.providers.fields import fields_of, parameters_of
from backends.secrets.credential_references import ReferenceRules
from contracts.engine.wire import ProviderTimeouts
from contracts.errors import TargetMisconfigured, UnsupportedParameter

MESSAGES = [{"role": "user", "content": "Hello"}]


def order(operation: str = CHAT, parameters: dict[str, Any] | None = None, **fields: Any) -> Order:
    return Order(operation, {"model": "a/b", **fields}, ProviderTimeouts(1, 1, 1, 1), parameters=parameters or {})


def test_fields_of_openai_s_go_through() -> None:
    given: dict[str, Any] = {
        "messages": MESSAGES,
        "temperature": 1,
        "max_tokens": 5,
        "tools": [{"type": "function"}],
        "stream": True,
    }
    assert fields_of(order(**given)) == given


def test_what_says_nothing_is_left_out() -> None:
    silent: dict[str, Any] = {
        "n": 1, "logprobs": False, "tools": [], "presence_penalty": 0, "store": False, "stop": None,
        "response_format": {"type": "text"}, "parallel_tool_calls": True, "stream": False, "min_p": 0,
        "metadata": {"a": "b"}, "safety_identifier": "x", "prompt_cache_key": "k", "ignore_eos": False,
    }  # fmt: skip
    assert fields_of(order(messages=MESSAGES, **silent)) == {"messages": MESSAGES}


@pytest.mark.parametrize(
    "name",
    ["api_base", "base_url", "api_key", "mock_response", "callbacks", "fallbacks", "model_list", "drop_params",
     "custom_llm_provider", "extra_headers", "min_p", "guided_json", "litellm_params", "input_cost_per_token"],
)  # fmt: skip
def test_a_field_that_is_not_listed_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedParameter, match=name) as refused:
        fields_of(order(messages=MESSAGES, **dict[str, Any]({name: "x"})))
    assert refused.value.param == name


@pytest.mark.parametrize(
    ("model", "kind", "is_taken"),
    [
        ("anthropic/claude", "document", True),
        ("anthropic/claude", "video_url", False),
        ("anthropic/claude", "input_audio", False),
        ("vertex_ai/claude", "input_audio", False),
        ("vertex_ai/gemini", "input_audio", True),
        ("gemini/gemini", "document", False),
        ("bedrock/x", "guarded_text", True),
        ("bedrock/x", "video_url", False),
        ("openai/x", "video_url", True),
    ],
)
def test_content_that_would_be_dropped_unsaid_is_refused_by_its_place(model: str, kind: str, is_taken: bool) -> None:
    said = [{"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": kind}]}]
    asked = order(model=model, messages=said)
    if is_taken:
        assert fields_of(asked) == {"messages": said}
        return
    with pytest.raises(UnsupportedParameter, match=kind) as refused:
        fields_of(asked)
    assert refused.value.param == "messages[0].content[1]"


@pytest.mark.parametrize("prompt", ["Say", ["Say"]])
def test_one_text_is_asked_as_a_chat(prompt: Any) -> None:
    assert fields_of(order(COMPLETIONS, prompt=prompt)) == {"messages": [{"role": "user", "content": "Say"}]}


@pytest.mark.parametrize("prompt", [["a", "b"], [1, 2], None, [], [[1]]])
def test_a_prompt_that_is_no_text_is_refused(prompt: Any) -> None:
    with pytest.raises(UnsupportedParameter, match="one text"):
        fields_of(order(COMPLETIONS, prompt=prompt))


def test_the_encoding_of_embeddings_is_ours_to_make() -> None:
    assert fields_of(order(EMBEDDINGS, input=["a"], encoding_format="base64")) == {"input": ["a"]}


def test_a_target_s_parameters_are_of_a_list() -> None:
    assert parameters_of(order(parameters={"api_version": "1"})) == {"api_version": "1"}
    with pytest.raises(TargetMisconfigured, match="'success_callback'.*it may set: .*api_version"):
        parameters_of(order(parameters={"success_callback": ["x"]}))


def test_credentials_are_read_where_a_pattern_allows_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from a file\n")
    (tmp_path / "two").write_text("two\nlines")
    credentials = Credentials(("env:*_API_KEY", f"file:{tmp_path}/*"), {"A_API_KEY": "from a variable", "B": "no"})
    assert credentials.resolve("env:A_API_KEY") == "from a variable"
    assert credentials.resolve(f"file:{tmp_path}/key") == "from a file"
    for reference, why in (
        ("env:B", "may not read"),
        ("env:C_API_KEY", "finds no credential"),
        (f"file:{tmp_path}/none", "cannot read"),
        (f"file:{tmp_path}/two", "line end"),
        (f"file:{tmp_path}/../passwd", "may not read"),
        ("sk-the-key-itself", "never the credential itself"),
    ):
        with pytest.raises(TargetMisconfigured, match=why) as refused:
            credentials.resolve(reference)
        assert "sk-the" not in refused.value.message


def test_what_no_pattern_allows_is_not_read(path_outside_dev: Path) -> None:
    secret = path_outside_dev / "data" / "secrets" / "admin_token"
    secret.parent.mkdir(parents=True)
    secret.write_text("tk-admin")
    (path_outside_dev / "link").symlink_to(secret)
    variables = {"TOLLKEEPER_STORE_PASSWORD": "no", "TOLLKEEPER_PROVIDER_A": "yes"}
    credentials = Credentials(("*",), variables, rules=ReferenceRules(path_outside_dev / "data"))
    for reference in (
        f"file:{secret}",
        f"file:{path_outside_dev}/link",
        "file:/proc/self/stat",
        "env:TOLLKEEPER_STORE_PASSWORD",
    ):
        with pytest.raises(TargetMisconfigured, match="may not read"):
            credentials.resolve(reference)
    assert credentials.resolve("env:TOLLKEEPER_PROVIDER_A") == "yes"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("azure_ad_token", "oidc/file//data/secrets/admin_token"),
        ("aws_web_identity_token", "os.environ/TOLLKEEPER_STORE_PASSWORD"),
        ("vertex_credentials", "/data/secrets/admin_token"),
        ("vertex_credentials", '{"type": "external_account", "credential_source": {"file": "/etc/passwd"}}'),
    ],
)
def test_a_stored_key_leads_to_no_file_or_variable(name: str, value: str) -> None:
    credentials = Credentials(("env:A",), {"A": value}, lambda _: value)
    with pytest.raises(TargetMisconfigured, match="'stored:k' names a further variable") as refused:
        credentials.credentials_of({name: "sealed:k:token"})
    assert value not in refused.value.message
    assert credentials.credentials_of({name: "env:A"}) == {name: value}  # the operator's own
    plain = Credentials((), {}, lambda _: '{"type": "service_account"}')
    assert plain.credentials_of({name: "sealed:k:token"})


@pytest.mark.parametrize("value", ["os.environ/TOLLKEEPER_STORE_PASSWORD", {"a": ["oidc/env/HOME"]}])
def test_a_target_s_parameters_lead_to_no_file_or_variable(value: object) -> None:
    with pytest.raises(TargetMisconfigured, match="may not name a variable or file"):
        parameters_of(order(parameters={"aws_session_name": value}))


def test_the_environment_is_emptied_of_what_litellm_would_read() -> None:
    environment = {"PATH": "/bin", "HTTPS_PROXY": "p", "ANTHROPIC_API_KEY": "k", "LITELLM_LOG": "DEBUG", "KEPT": "1"}
    before = withdraw(environment, ("KEPT",))
    assert before["ANTHROPIC_API_KEY"] == "k"
    assert "ANTHROPIC_API_KEY" not in environment and "LITELLM_LOG" not in environment
    assert (environment["PATH"], environment["HTTPS_PROXY"], environment["KEPT"]) == ("/bin", "p", "1")
    assert environment["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
