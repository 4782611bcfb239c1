"""Routes that look at what a prompt is about, as applications meet them, with the real model in its process."""

import json

SEMANTIC = {
    "intents": [
        {
            "name": "code",
            "description": "Writing and debugging programs",
            "utterances": [
                "Write a Python function that sorts a list",
                "Why does my loop never end?",
                "Fix the bug in this class",
                "How do I join two SQL tables?",
                "Explain this stack trace",
            ],
        },
        {
            "name": "billing",
            "utterances": [
                "I was charged twice",
                "Where is my invoice?",
                "I would like a refund",
                "Cancel my subscription",
                "Update my credit card",
            ],
        },
    ],
    "complexity": {
        "threshold": 0.5,
        "simple": ["What is the capital of Norway?", "Translate hello", "What is 2 plus 3?", "Who wrote Hamlet?"],
        "complex": [
            "Prove that the square root of two is irrational and explain each step",
            "Design a distributed cache and discuss its trade-offs",
            "Derive the formula and analyse its error",
            "Compare both theories and argue which explains the data better",
        ],
    },
}


def config(kit):
    pools = [(name, [kit.scripted(name, tokens=2)]) for name in ("small", "large", "coder")]
    choose = [
        {"model": "coder", "when": {"intent": "code"}},
        {"model": "large", "when": {"complexity": "complex"}},
        {"model": "small", "when": {"complexity": "simple"}},
    ]
    plain = {"name": "plain", "choose": [{"model": "small"}]}
    route = {"name": "assistant", "choose": choose, "fallbacks": [{"model": "small"}], "semantic": SEMANTIC}
    return {**kit.configuration(*pools), "routes": [route, plain]}


async def ask(gateway, text, model="assistant", **fields):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    answer = await gateway.chat(model=model, messages=messages, **fields)
    assert answer.status == 200
    record = gateway.requests()[-1]
    return record.model, json.loads(record.route_decision).get("semantic")


def standing(gateway):
    return gateway.gateway.health()["semantic"]


async def test_prompts_go_where_their_meaning_leads_them(start_gateway, kit, eventually):
    gateway = await start_gateway(config(kit), semantic_timeout_ms=30_000)  # the machine may be busy
    first, read = await ask(gateway, "Please debug my Java code")  # the examples are being learned: the default answers
    assert first == "small" and read["state"] in ("loading", "read")
    reader = gateway.gateway._semantic.reader
    await eventually(lambda: reader.status()["assistant"]["state"] == "ready", within=120)
    for text, expected in (
        ("There is a bug in my JavaScript, please fix it", ("coder", "read", "code")),
        ("Prove that there are infinitely many primes and discuss the proof", ("large", "abstained", None)),
        ("What is the capital of Peru?", ("small", "abstained", None)),
    ):
        model, read = await ask(gateway, text)
        assert (model, read["state"], read.get("intent")) == expected, (text, read)
        assert text not in json.dumps(read)
    model, read = await ask(gateway, "There is a bug in my JavaScript, please fix it", model="plain")
    assert (model, read) == ("small", None)
    report = standing(gateway)["routes"]["assistant"]
    assert 0 < report["threshold"] < 1 and report["accuracy"] is not None and report["complexity_accuracy"] >= 0.5


async def test_where_no_route_reads_prompts_no_embedder_runs(start_gateway, kit):
    settings = config(kit)
    settings["routes"] = settings["routes"][1:]
    gateway = await start_gateway(settings)
    await ask(gateway, "Please debug my Java code", model="plain")
    assert standing(gateway) == {"embedder": "not_running", "embedder_restarts": 0, "vectors_made": 0, "routes": {}}


async def test_answers_of_the_default_say_that_the_route_could_not_read(start_gateway, kit, eventually):
    gateway = await start_gateway(config(kit), semantic_timeout_ms=30_000)
    reader = gateway.gateway._semantic.reader
    seen = set()

    async def state_and_header(**fields):
        answer = await gateway.chat(model="assistant", **fields)
        read = json.loads(gateway.requests()[-1].route_decision)["semantic"]["state"]
        return answer.status, read, answer.headers.get("x-tollkeeper-route-state")

    for fields in ({}, {"stream": True}):
        seen.add(await state_and_header(**fields))
    assert seen == {(200, "loading", "learning")}
    await eventually(lambda: reader.status()["assistant"]["state"] == "ready", within=120)
    assert (await state_and_header())[2] is None
    reader._timeout_seconds = 0.0
    unknown = [{"role": "user", "content": "a text whose vector is not known"}]
    assert await state_and_header(messages=unknown) == (200, "late", "late")
    plain = await gateway.chat(model="plain")
    assert "x-tollkeeper-route-state" not in plain.headers
