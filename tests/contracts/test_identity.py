"""Who pays: five levels and tags, and what a caller may add for one request."""

from contracts.access.identity import ANONYMOUS, Identity

ACME = Identity("acme", "search", "ranking", "key_1", tags={"env": "prod", "feature": "chat"})


def test_an_identity_has_five_levels_and_tags():
    assert Identity.__struct_fields__ == ("tenant", "team", "project", "key_id", "user", "tags")


def test_a_caller_adds_a_user_and_tags_and_changes_nothing_of_the_keys_own():
    named = ACME.with_caller("user-7", {"feature": "summary", "run": "1"})
    assert named == Identity(
        "acme", "search", "ranking", "key_1", "user-7", {"env": "prod", "feature": "chat", "run": "1"}
    )
    assert ACME.user == ""
    assert ACME.tags == {"env": "prod", "feature": "chat"}


def test_a_caller_who_says_nothing_leaves_the_keys_own_identity():
    assert ACME.with_caller("", {}) is ACME
    assert ACME.with_caller("", {"run": "1"}).user == ""
    named = ACME.with_caller("user-7", {})
    assert named.with_caller("", {"run": "1"}).user == "user-7"
    assert named.tags == ACME.tags


def test_nobody_in_particular_belongs_to_no_tenant():
    assert ANONYMOUS == Identity("")
    assert Identity("a").tags is not Identity("b").tags
