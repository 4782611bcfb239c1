"""What engine hosts say of themselves, as a pool's room."""

from backends.llm.host.engine_room import EngineRoom, RoomBook
from contracts.engine.wire import Hello, ModelHello
from contracts.pricing.prices import PriceBook
from contracts.serving.configuration import ModelSpec, PoolSpec, Snapshot, TargetSpec
from gateway.limits.queue.engine_rooms import EngineRooms
from gateway.limits.queue.request import PoolRoom
from gateway.request.clock import Clock

MODEL = ModelHello(id="small", block_size=16, kv_blocks=100)
HELLO = Hello(version=1, engine="e", engine_kind="torch", engine_version="1", models=[MODEL], clock_ns=0, wall_ns=0)


def facts(running=0, waiting=0, held=0):
    return {
        "small.running": running, "small.waiting": waiting, "small.kv_blocks_held": held, "small.max_sequences": 64,
    }  # fmt: skip


def test_a_hosts_room_is_known_from_its_hello_before_it_has_counted_anything() -> None:
    assert RoomBook().room(MODEL) == EngineRoom(kv_tokens=1_600)


def test_a_model_without_kv_cache_or_not_ready_has_no_room_to_tell() -> None:
    assert RoomBook().room(ModelHello(id="embed", kind="embed")) is None
    assert RoomBook().room(ModelHello(id="small", state="loading", block_size=16, kv_blocks=100)) is None


def test_what_is_ours_is_not_counted_as_others() -> None:
    book = RoomBook()
    for _ in range(2):
        book.note(HELLO, facts(running=4, held=40), ours=4)
    assert book.room(MODEL) == EngineRoom(1_600, 64, 0, 0)


def test_others_count_once_two_reports_agree_on_them() -> None:
    book = RoomBook()
    book.note(HELLO, facts(running=4, held=40), ours=1)
    assert book.room(MODEL) == EngineRoom(1_600, 64, 0, 0)
    book.note(HELLO, facts(running=4, held=40), ours=2)
    assert book.room(MODEL) == EngineRoom(1_600, 64, 2, 320)
    book.forget()
    assert book.room(MODEL) == EngineRoom(1_600)


class Hosts:
    """Hosts of which the rooms are given."""

    def __init__(self, **rooms: EngineRoom | None) -> None:
        self.rooms = rooms

    def room(self, url: str, model: str) -> EngineRoom | None:
        return self.rooms.get(f"{url}_{model}")


def rooms_of(hosts, *targets: TargetSpec, now_ns=lambda: 0) -> EngineRooms:
    pool = PoolSpec("pool", targets)
    models = {"small": ModelSpec("small", "pool")}
    snapshot = Snapshot(revision=1, keys={}, models=models, pools={"pool": pool}, prices=PriceBook())
    return EngineRooms(hosts, lambda: snapshot, Clock(monotonic_ns=now_ns))


def engine(name: str, url: str, model: str = "") -> TargetSpec:
    return TargetSpec(name, "pool", "engine", url, model)


def test_the_hosts_of_a_pool_are_added_up_and_one_that_is_away_adds_nothing() -> None:
    hosts = Hosts(a_small=EngineRoom(1_000, 8, 1, 30), b_tiny=EngineRoom(500, 4))
    rooms = rooms_of(hosts, engine("1", "a"), engine("2", "b", "tiny"), engine("3", "away"), engine("4", "a", "small"))
    assert rooms.room_of("pool") == PoolRoom(12, 1_500, 1, 30)


def test_a_pool_that_is_not_all_engine_hosts_says_nothing() -> None:
    hosts = Hosts(a_small=EngineRoom(1_000, 8))
    mixed = rooms_of(hosts, engine("1", "a"), TargetSpec("2", "pool", "openai_http", "http://b"))
    assert mixed.room_of("pool") is None
    assert rooms_of(hosts, engine("1", "away")).room_of("pool") is None
    assert mixed.room_of("unknown") is None


def test_a_room_that_has_not_changed_is_the_same_object_and_a_changed_one_is_seen() -> None:
    now = [0]
    hosts = Hosts(a_small=EngineRoom(1_000, 8))
    rooms = rooms_of(hosts, engine("1", "a"), now_ns=lambda: now[0])
    first = rooms.room_of("pool")
    now[0] += 10**9
    assert rooms.room_of("pool") is first
    hosts.rooms["a_small"] = EngineRoom(2_000, 8)
    now[0] += 10**9
    assert rooms.room_of("pool") == PoolRoom(8, 2_000)
