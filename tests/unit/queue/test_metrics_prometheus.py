import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from holdfast.queue.alarms import AlarmKind, QueueAlarm, QueueReading
from holdfast.queue.backend import QueueSnapshot
from holdfast.queue.events import AttemptResult
from holdfast.queue.message import RefusalReason
from holdfast.testing import seeded
from tests.unit.forked import fork
from tests.unit.queue.made import NOW, Scraped, delivery, handled, lane, polled, sent, snapshot, tenant, trouble


def values(metrics: Scraped, name: str) -> dict[tuple[str, ...], float]:
    """The samples of a metric by the values of their labels, as Prometheus' own parser reads them."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics.render())
        for sample in family.samples
        if sample.name == name
    }


def looked() -> QueueSnapshot:
    return snapshot(
        lane(3, ready=5, leased=2, age=10),
        lane(-9, ready=100, delayed=1, dead=4, age=500),
        tenants=[tenant("acme", ready=3, spilled=100, leased=1, dead=4)],
    )


def test_nothing_is_written_before_anything_has_happened() -> None:
    assert Scraped().render() == ""


def test_the_text_is_exactly_this() -> None:
    metrics = Scraped()
    metrics.emit(polled(delivery(age=2), delivery("bolt", age=20, attempt=2), redelivered=1, dropped=2, buried=3))
    metrics.emit(polled(spilled=4))
    metrics.emit(handled(seconds=0.5))
    metrics.emit(trouble())
    metrics.emit(looked())
    metrics.emit(
        QueueReading(
            queue="mail", at=NOW, values={AlarmKind.FIRST_ATTEMPT_AGE: 2.5}, alarms={AlarmKind.OLDEST_AGE: False}
        )
    )
    metrics.emit(
        QueueAlarm(queue="mail", kind=AlarmKind.DEAD_LETTERS, is_open=True, at=1, value=4, threshold=1, since=1)
    )
    assert metrics.render() == TEXT


def test_every_metric_has_the_kind_that_its_name_promises() -> None:
    families = {family.name: family.type for family in text_string_to_metric_families(TEXT)}
    gauges = {"messages", "oldest_age_seconds", "lanes_in_use", "snapshot_timestamp_seconds", "tenant_messages"}
    gauges = {f"holdfast_queue_{name}" for name in (*gauges, "first_attempt_wait_seconds", "alarm_open")}
    for name, kind in families.items():
        duration = "summary" if "_tenant_" in name else "histogram"
        assert kind == ("gauge" if name in gauges else duration if name.endswith("_seconds") else "counter")
    assert len(families) == 24


def test_messages_are_counted_by_how_they_ended() -> None:
    metrics = Scraped()
    for ending in (AttemptResult.ACKED, AttemptResult.ACKED, *AttemptResult):
        metrics.emit(handled(ending))
    assert values(metrics, "holdfast_queue_handled_total") == {
        ("mail", ending): 3 if ending is AttemptResult.ACKED else 1 for ending in AttemptResult
    }


def test_endings_that_never_happened_are_there_as_nothing() -> None:
    metrics = Scraped()
    metrics.emit(handled())
    assert values(metrics, "holdfast_queue_handled_total")["mail", "buried"] == 0


def test_queues_that_are_known_begin_at_nothing() -> None:
    metrics = Scraped(queues=["mail", "pay"])
    assert values(metrics, "holdfast_queue_handled_total") == {
        (queue, ending): 0 for queue in ("mail", "pay") for ending in AttemptResult
    }
    assert values(metrics, "holdfast_queue_received_total") == {("mail",): 0, ("pay",): 0}


def test_a_producer_counts_what_is_stored_refused_and_spilled_by_tenant() -> None:
    metrics = Scraped()
    metrics.emit(sent("acme", "acme", spilled=1, duplicates=5))
    metrics.emit(sent("acme", "bolt", "bolt", refused=RefusalReason.MAX_RATE))
    metrics.emit(sent("bolt", refused=RefusalReason.MAX_WAITING))
    assert values(metrics, "holdfast_queue_sent_total") == {("mail",): 2}
    assert values(metrics, "holdfast_queue_tenant_sent_total") == {("mail", "acme"): 2}
    assert values(metrics, "holdfast_queue_spilled_total") == {("mail",): 1}
    assert values(metrics, "holdfast_queue_tenant_spilled_total") == {("mail", "acme"): 1}
    assert values(metrics, "holdfast_queue_refused_total") == {("mail", "max_rate"): 3, ("mail", "max_waiting"): 1}
    assert values(metrics, "holdfast_queue_tenant_refused_total") == {
        ("mail", "acme", "max_rate"): 1,
        ("mail", "bolt", "max_rate"): 2,
        ("mail", "bolt", "max_waiting"): 1,
    }


def test_spilled_messages_of_workers_and_producers_are_one_total() -> None:
    metrics = Scraped()
    metrics.emit(sent("acme", spilled=1))
    metrics.emit(polled(spilled=4))
    assert values(metrics, "holdfast_queue_spilled_total") == {("mail",): 5}
    assert values(metrics, "holdfast_queue_tenant_spilled_total") == {("mail", "acme"): 1}


def test_of_very_many_tenants_that_send_few_have_a_name() -> None:
    metrics = Scraped(max_tenants=2)
    for number in range(50):
        metrics.emit(sent(f"tenant-{number}", refused=RefusalReason.MAX_RATE))
    assert set(values(metrics, "holdfast_queue_tenant_refused_total")) == {
        ("mail", name, "max_rate") for name in ("tenant-0", "tenant-1", "other")
    }
    assert values(metrics, "holdfast_queue_refused_total")["mail", "max_rate"] == 50


def test_a_producer_begins_at_nothing_and_is_no_worker() -> None:
    metrics = Scraped()
    metrics.start_producer("mail")
    assert values(metrics, "holdfast_queue_sent_total") == {("mail",): 0}
    assert values(metrics, "holdfast_queue_refused_total") == {("mail", "max_rate"): 0, ("mail", "max_waiting"): 0}
    assert values(metrics, "holdfast_queue_spilled_total") == {("mail",): 0}
    assert values(metrics, "holdfast_queue_polls_total") == {}


def test_what_was_handed_back_unfinished_has_no_duration() -> None:
    metrics = Scraped()
    metrics.emit(handled(AttemptResult.RELEASED, seconds=0.0))
    assert values(metrics, "holdfast_queue_handler_seconds_count") == {("mail",): 0}
    metrics.emit(handled(AttemptResult.LEASE_LOST, seconds=31.0))
    assert values(metrics, "holdfast_queue_handler_seconds_sum") == {("mail",): 31}


def test_polls_tell_whether_workers_have_anything_in_reserve() -> None:
    metrics = Scraped()
    for event in (polled(), polled(), polled(delivery())):
        metrics.emit(event)
    assert values(metrics, "holdfast_queue_polls_total") == {("mail", "empty"): 2, ("mail", "filled"): 1}


def test_ages_of_first_attempts_are_told_apart_from_the_others() -> None:
    metrics = Scraped()
    metrics.emit(
        polled(
            delivery(age=1.0),
            delivery(age=40.0, attempt=2),
            delivery(age=300.0, waited=2.0),
            delivery(age=5.0, first_subscriber=True),
        )
    )
    for name, count, total in (("age", 4, 346), ("first_attempt_age", 2, 6), ("first_subscriber_age", 1, 5)):
        for family, labels in (("", ("mail",)), ("tenant_", ("mail", "acme"))):
            assert values(metrics, f"holdfast_queue_{family}{name}_seconds_count") == {labels: count}
            assert values(metrics, f"holdfast_queue_{family}{name}_seconds_sum") == {labels: pytest.approx(total)}


def test_a_process_that_only_looks_tells_nothing_of_workers() -> None:
    metrics = Scraped()
    metrics.emit(looked())
    assert {family.name for family in text_string_to_metric_families(metrics.render())} == {
        "holdfast_queue_messages",
        "holdfast_queue_oldest_age_seconds",
        "holdfast_queue_lanes_in_use",
        "holdfast_queue_snapshot_timestamp_seconds",
        "holdfast_queue_tenant_messages",
    }


def test_the_depth_is_that_of_the_last_look() -> None:
    metrics = Scraped()
    metrics.emit(looked())
    assert sum(values(metrics, "holdfast_queue_messages").values()) == 5 + 2 + 100 + 1 + 4
    metrics.emit(snapshot(lane(3, ready=1, age=2), at=NOW))
    assert values(metrics, "holdfast_queue_messages") == {
        ("mail", "ready"): 1,
        **{("mail", state): 0 for state in ("spilled", "leased", "delayed", "dead")},
    }
    assert values(metrics, "holdfast_queue_oldest_age_seconds") == {("mail",): 2}
    assert values(metrics, "holdfast_queue_snapshot_timestamp_seconds") == {("mail",): NOW}


def test_queues_do_not_mix() -> None:
    metrics = Scraped()
    for queue in ("mail", "pay", "mail"):
        metrics.emit(handled(queue=queue))
        metrics.emit(polled(delivery(queue=queue), queue=queue))
    assert values(metrics, "holdfast_queue_received_total") == {("mail",): 2, ("pay",): 1}
    assert values(metrics, "holdfast_queue_tenant_received_total") == {("mail", "acme"): 2, ("pay", "acme"): 1}


def test_without_tenants_there_are_no_series_of_tenants() -> None:
    metrics = Scraped(max_tenants=0)
    metrics.emit(polled(delivery()))
    metrics.emit(handled())
    metrics.emit(looked())
    assert "acme" not in metrics.render()
    assert "tenant=" not in metrics.render()


def test_ten_thousand_tenants_have_twenty_names_and_lose_no_message() -> None:
    metrics, random = Scraped(), seeded("tenants")
    everybody = [f"tenant {number}" for number in range(10_000)]
    for poll in range(200):
        some = [*random.choices(everybody, k=100), everybody[poll * 50]]
        metrics.emit(polled(*(delivery(name) for name in some), at=NOW + poll))
        for name in some:
            metrics.emit(handled(tenant=name))
    metrics.emit(snapshot(lane(1, ready=10_000), tenants=[tenant(name, ready=1) for name in everybody]))
    received = values(metrics, "holdfast_queue_tenant_received_total")
    assert len(received) == 21
    assert sum(received.values()) == 200 * 101
    assert sum(values(metrics, "holdfast_queue_tenant_messages").values()) == 10_000
    assert len(values(metrics, "holdfast_queue_tenant_messages")) == 21 * 5
    assert len(metrics.render().splitlines()) < 600


def test_endless_queues_share_one_name() -> None:
    metrics = Scraped()
    for number in range(1000):
        metrics.emit(polled(delivery(queue=f"q{number}"), queue=f"q{number}"))
    received = values(metrics, "holdfast_queue_received_total")
    assert len(received) == 201
    assert received["other",] == 800


def test_no_depth_and_no_alarm_stands_for_several_queues() -> None:
    """They would overwrite each other: how many are left out is told instead."""
    metrics = Scraped()
    for _ in range(2):
        for number in range(203):
            name, kind = f"q{number}", AlarmKind.DEAD_LETTERS
            metrics.emit(snapshot(lane(1, ready=number), queue=name))
            metrics.emit(QueueReading(queue=name, at=NOW, values={AlarmKind.FIRST_ATTEMPT_AGE: 1.0}))
            metrics.emit(QueueAlarm(queue=name, kind=kind, is_open=True, at=1, value=4, threshold=1, since=1))
    for family in ("messages", "first_attempt_wait_seconds", "alarm_open", "oldest_age_seconds"):
        found = {labels[0] for labels in values(metrics, f"holdfast_queue_{family}")}
        assert (len(found), "other" in found) == (200, False)
    assert values(metrics, "holdfast_queue_unmonitored") == {(): 3}


def test_queues_that_are_left_out_take_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.queue.metrics.MAX_LEFT_OUT", 5)
    metrics = Scraped()
    for number in range(300):
        metrics.emit(snapshot(queue=f"q{number}"))
    assert values(metrics, "holdfast_queue_unmonitored") == {(): 5}


def test_a_queue_called_other_has_its_own_depth() -> None:
    metrics = Scraped()
    metrics.emit(snapshot(lane(1, ready=7), queue="other"))
    assert values(metrics, "holdfast_queue_messages")["other", "ready"] == 7


def test_a_tenant_that_lost_its_place_goes_on_as_other_and_no_count_falls() -> None:
    metrics = Scraped(max_tenants=1)
    metrics.emit(polled(delivery("small"), delivery("large")))
    assert values(metrics, "holdfast_queue_tenant_received_total") == {("mail", "small"): 1, ("mail", "other"): 1}
    metrics.emit(polled(*[delivery("large")] * 100, at=NOW + 60))
    metrics.emit(polled(delivery("small"), at=NOW + 61))
    assert values(metrics, "holdfast_queue_tenant_received_total") == {("mail", "large"): 100, ("mail", "other"): 2}
    assert values(metrics, "holdfast_queue_received_total") == {("mail",): 103}


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_name_comes_back_as_it_was(queue: str, name: str) -> None:
    metrics = Scraped()
    metrics.emit(polled(delivery(name), queue=queue))
    metrics.render().encode()
    assert values(metrics, "holdfast_queue_tenant_received_total") == {(queue, name): 1}


def test_no_event_of_several_threads_is_lost() -> None:
    metrics = Scraped()

    def work() -> None:
        for _ in range(300):
            metrics.emit(handled())
            metrics.emit(polled(delivery()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values(metrics, "holdfast_queue_handled_total")["mail", "acked"] == 1200
    assert values(metrics, "holdfast_queue_received_total") == {("mail",): 1200}


def test_a_forked_child_begins_at_nothing_even_if_the_lock_was_held() -> None:
    metrics = Scraped()
    metrics.emit(handled())
    with metrics.prometheus._lock:
        child = fork()
        if child == 0:
            os._exit(0 if set(values(metrics, "holdfast_queue_handled_total").values()) == {0} else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert values(metrics, "holdfast_queue_handled_total")["mail", "acked"] == 1


TEXT = """\
# HELP holdfast_queue_polls_total Requests of workers for messages.
# TYPE holdfast_queue_polls_total counter
holdfast_queue_polls_total{queue="mail",result="empty"} 1
holdfast_queue_polls_total{queue="mail",result="filled"} 1
# HELP holdfast_queue_received_total Messages leased to workers.
# TYPE holdfast_queue_received_total counter
holdfast_queue_received_total{queue="mail"} 2
# HELP holdfast_queue_tenant_received_total Messages leased to workers, by tenant.
# TYPE holdfast_queue_tenant_received_total counter
holdfast_queue_tenant_received_total{queue="mail",tenant="acme"} 1
holdfast_queue_tenant_received_total{queue="mail",tenant="bolt"} 1
# HELP holdfast_queue_handled_total Attempts to handle a message that have ended.
# TYPE holdfast_queue_handled_total counter
holdfast_queue_handled_total{queue="mail",result="acked"} 1
holdfast_queue_handled_total{queue="mail",result="buried"} 0
holdfast_queue_handled_total{queue="mail",result="lease_lost"} 0
holdfast_queue_handled_total{queue="mail",result="postponed"} 0
holdfast_queue_handled_total{queue="mail",result="released"} 0
holdfast_queue_handled_total{queue="mail",result="retried"} 0
# HELP holdfast_queue_tenant_handled_total Attempts to handle a message that have ended, by tenant.
# TYPE holdfast_queue_tenant_handled_total counter
holdfast_queue_tenant_handled_total{queue="mail",tenant="acme",result="acked"} 1
# HELP holdfast_queue_redelivered_total Messages made ready again because their leases had expired.
# TYPE holdfast_queue_redelivered_total counter
holdfast_queue_redelivered_total{queue="mail"} 1
# HELP holdfast_queue_dropped_total Messages dropped because they were older than their ttl.
# TYPE holdfast_queue_dropped_total counter
holdfast_queue_dropped_total{queue="mail"} 2
# HELP holdfast_queue_spilled_total Messages moved to their tenants' overflow lanes, while sending or leasing.
# TYPE holdfast_queue_spilled_total counter
holdfast_queue_spilled_total{queue="mail"} 4
# HELP holdfast_queue_buried_after_crash_total Messages buried because their leases expired too often.
# TYPE holdfast_queue_buried_after_crash_total counter
holdfast_queue_buried_after_crash_total{queue="mail"} 3
# HELP holdfast_queue_backend_errors_total Times the backend could not be reached.
# TYPE holdfast_queue_backend_errors_total counter
holdfast_queue_backend_errors_total{queue="mail",operation="extend"} 0
holdfast_queue_backend_errors_total{queue="mail",operation="inspect"} 0
holdfast_queue_backend_errors_total{queue="mail",operation="lease"} 1
holdfast_queue_backend_errors_total{queue="mail",operation="settle"} 0
holdfast_queue_backend_errors_total{queue="mail",operation="sweep"} 0
# HELP holdfast_queue_handler_seconds Seconds that handlers took.
# TYPE holdfast_queue_handler_seconds histogram
holdfast_queue_handler_seconds_bucket{queue="mail",le="0.00390625"} 0
holdfast_queue_handler_seconds_bucket{queue="mail",le="0.0078125"} 0
holdfast_queue_handler_seconds_bucket{queue="mail",le="0.015625"} 0
holdfast_queue_handler_seconds_bucket{queue="mail",le="0.03125"} 0
holdfast_queue_handler_seconds_bucket{queue="mail",le="0.0625"} 0
holdfast_queue_handler_seconds_bucket{queue="mail",le="0.125"} 0
holdfast_queue_handler_seconds_bucket{queue="mail",le="0.25"} 0
holdfast_queue_handler_seconds_bucket{queue="mail",le="0.5"} 1
holdfast_queue_handler_seconds_bucket{queue="mail",le="1.0"} 1
holdfast_queue_handler_seconds_bucket{queue="mail",le="2.0"} 1
holdfast_queue_handler_seconds_bucket{queue="mail",le="4.0"} 1
holdfast_queue_handler_seconds_bucket{queue="mail",le="8.0"} 1
holdfast_queue_handler_seconds_bucket{queue="mail",le="16.0"} 1
holdfast_queue_handler_seconds_bucket{queue="mail",le="32.0"} 1
holdfast_queue_handler_seconds_bucket{queue="mail",le="64.0"} 1
holdfast_queue_handler_seconds_bucket{queue="mail",le="128.0"} 1
holdfast_queue_handler_seconds_bucket{queue="mail",le="256.0"} 1
holdfast_queue_handler_seconds_bucket{queue="mail",le="512.0"} 1
holdfast_queue_handler_seconds_bucket{queue="mail",le="1024.0"} 1
holdfast_queue_handler_seconds_bucket{queue="mail",le="+Inf"} 1
holdfast_queue_handler_seconds_sum{queue="mail"} 0.5
holdfast_queue_handler_seconds_count{queue="mail"} 1
# HELP holdfast_queue_tenant_handler_seconds Seconds that handlers took, by tenant.
# TYPE holdfast_queue_tenant_handler_seconds summary
holdfast_queue_tenant_handler_seconds_sum{queue="mail",tenant="acme"} 0.5
holdfast_queue_tenant_handler_seconds_count{queue="mail",tenant="acme"} 1
# HELP holdfast_queue_age_seconds Age of messages when they were received.
# TYPE holdfast_queue_age_seconds histogram
holdfast_queue_age_seconds_bucket{queue="mail",le="0.015625"} 0
holdfast_queue_age_seconds_bucket{queue="mail",le="0.0625"} 0
holdfast_queue_age_seconds_bucket{queue="mail",le="0.25"} 0
holdfast_queue_age_seconds_bucket{queue="mail",le="1.0"} 0
holdfast_queue_age_seconds_bucket{queue="mail",le="4.0"} 1
holdfast_queue_age_seconds_bucket{queue="mail",le="16.0"} 1
holdfast_queue_age_seconds_bucket{queue="mail",le="64.0"} 2
holdfast_queue_age_seconds_bucket{queue="mail",le="256.0"} 2
holdfast_queue_age_seconds_bucket{queue="mail",le="1024.0"} 2
holdfast_queue_age_seconds_bucket{queue="mail",le="4096.0"} 2
holdfast_queue_age_seconds_bucket{queue="mail",le="16384.0"} 2
holdfast_queue_age_seconds_bucket{queue="mail",le="65536.0"} 2
holdfast_queue_age_seconds_bucket{queue="mail",le="262144.0"} 2
holdfast_queue_age_seconds_bucket{queue="mail",le="+Inf"} 2
holdfast_queue_age_seconds_sum{queue="mail"} 22.0
holdfast_queue_age_seconds_count{queue="mail"} 2
# HELP holdfast_queue_tenant_age_seconds Age of messages when they were received, by tenant.
# TYPE holdfast_queue_tenant_age_seconds summary
holdfast_queue_tenant_age_seconds_sum{queue="mail",tenant="acme"} 2.0
holdfast_queue_tenant_age_seconds_count{queue="mail",tenant="acme"} 1
holdfast_queue_tenant_age_seconds_sum{queue="mail",tenant="bolt"} 20.0
holdfast_queue_tenant_age_seconds_count{queue="mail",tenant="bolt"} 1
# HELP holdfast_queue_first_attempt_age_seconds Age at the first attempt.
# TYPE holdfast_queue_first_attempt_age_seconds histogram
holdfast_queue_first_attempt_age_seconds_bucket{queue="mail",le="0.015625"} 0
holdfast_queue_first_attempt_age_seconds_bucket{queue="mail",le="0.0625"} 0
holdfast_queue_first_attempt_age_seconds_bucket{queue="mail",le="0.25"} 0
holdfast_queue_first_attempt_age_seconds_bucket{queue="mail",le="1.0"} 0
holdfast_queue_first_attempt_age_seconds_bucket{queue="mail",le="4.0"} 1
holdfast_queue_first_attempt_age_seconds_bucket{queue="mail",le="16.0"} 1
holdfast_queue_first_attempt_age_seconds_bucket{queue="mail",le="64.0"} 1
holdfast_queue_first_attempt_age_seconds_bucket{queue="mail",le="256.0"} 1
holdfast_queue_first_attempt_age_seconds_bucket{queue="mail",le="1024.0"} 1
holdfast_queue_first_attempt_age_seconds_bucket{queue="mail",le="4096.0"} 1
holdfast_queue_first_attempt_age_seconds_bucket{queue="mail",le="16384.0"} 1
holdfast_queue_first_attempt_age_seconds_bucket{queue="mail",le="65536.0"} 1
holdfast_queue_first_attempt_age_seconds_bucket{queue="mail",le="262144.0"} 1
holdfast_queue_first_attempt_age_seconds_bucket{queue="mail",le="+Inf"} 1
holdfast_queue_first_attempt_age_seconds_sum{queue="mail"} 2.0
holdfast_queue_first_attempt_age_seconds_count{queue="mail"} 1
# HELP holdfast_queue_tenant_first_attempt_age_seconds Age at the first attempt, by tenant.
# TYPE holdfast_queue_tenant_first_attempt_age_seconds summary
holdfast_queue_tenant_first_attempt_age_seconds_sum{queue="mail",tenant="acme"} 2.0
holdfast_queue_tenant_first_attempt_age_seconds_count{queue="mail",tenant="acme"} 1
# HELP holdfast_queue_first_subscriber_age_seconds Age at the first attempt of the first subscriber.
# TYPE holdfast_queue_first_subscriber_age_seconds histogram
holdfast_queue_first_subscriber_age_seconds_bucket{queue="mail",le="0.015625"} 0
holdfast_queue_first_subscriber_age_seconds_bucket{queue="mail",le="0.0625"} 0
holdfast_queue_first_subscriber_age_seconds_bucket{queue="mail",le="0.25"} 0
holdfast_queue_first_subscriber_age_seconds_bucket{queue="mail",le="1.0"} 0
holdfast_queue_first_subscriber_age_seconds_bucket{queue="mail",le="4.0"} 0
holdfast_queue_first_subscriber_age_seconds_bucket{queue="mail",le="16.0"} 0
holdfast_queue_first_subscriber_age_seconds_bucket{queue="mail",le="64.0"} 0
holdfast_queue_first_subscriber_age_seconds_bucket{queue="mail",le="256.0"} 0
holdfast_queue_first_subscriber_age_seconds_bucket{queue="mail",le="1024.0"} 0
holdfast_queue_first_subscriber_age_seconds_bucket{queue="mail",le="4096.0"} 0
holdfast_queue_first_subscriber_age_seconds_bucket{queue="mail",le="16384.0"} 0
holdfast_queue_first_subscriber_age_seconds_bucket{queue="mail",le="65536.0"} 0
holdfast_queue_first_subscriber_age_seconds_bucket{queue="mail",le="262144.0"} 0
holdfast_queue_first_subscriber_age_seconds_bucket{queue="mail",le="+Inf"} 0
holdfast_queue_first_subscriber_age_seconds_sum{queue="mail"} 0.0
holdfast_queue_first_subscriber_age_seconds_count{queue="mail"} 0
# HELP holdfast_queue_messages Messages in the queue, each in one state.
# TYPE holdfast_queue_messages gauge
holdfast_queue_messages{queue="mail",state="dead"} 4
holdfast_queue_messages{queue="mail",state="delayed"} 1
holdfast_queue_messages{queue="mail",state="leased"} 2
holdfast_queue_messages{queue="mail",state="ready"} 5
holdfast_queue_messages{queue="mail",state="spilled"} 100
# HELP holdfast_queue_tenant_messages Messages in the queue, each in one state, by tenant.
# TYPE holdfast_queue_tenant_messages gauge
holdfast_queue_tenant_messages{queue="mail",tenant="acme",state="dead"} 4
holdfast_queue_tenant_messages{queue="mail",tenant="acme",state="delayed"} 0
holdfast_queue_tenant_messages{queue="mail",tenant="acme",state="leased"} 1
holdfast_queue_tenant_messages{queue="mail",tenant="acme",state="ready"} 3
holdfast_queue_tenant_messages{queue="mail",tenant="acme",state="spilled"} 100
holdfast_queue_tenant_messages{queue="mail",tenant="other",state="dead"} 0
holdfast_queue_tenant_messages{queue="mail",tenant="other",state="delayed"} 1
holdfast_queue_tenant_messages{queue="mail",tenant="other",state="leased"} 1
holdfast_queue_tenant_messages{queue="mail",tenant="other",state="ready"} 2
holdfast_queue_tenant_messages{queue="mail",tenant="other",state="spilled"} 0
# HELP holdfast_queue_oldest_age_seconds Age of the oldest waiting message; 0 if none waits.
# TYPE holdfast_queue_oldest_age_seconds gauge
holdfast_queue_oldest_age_seconds{queue="mail"} 500.0
# HELP holdfast_queue_lanes_in_use Lanes that are not empty.
# TYPE holdfast_queue_lanes_in_use gauge
holdfast_queue_lanes_in_use{queue="mail"} 2
# HELP holdfast_queue_snapshot_timestamp_seconds When the queue was last inspected.
# TYPE holdfast_queue_snapshot_timestamp_seconds gauge
holdfast_queue_snapshot_timestamp_seconds{queue="mail"} 1750000000.0
# HELP holdfast_queue_first_attempt_wait_seconds Seconds new work waits for its first attempt, as the alarm computes it.
# TYPE holdfast_queue_first_attempt_wait_seconds gauge
holdfast_queue_first_attempt_wait_seconds{queue="mail"} 2.5
# HELP holdfast_queue_alarm_open Whether an alarm on the queue is open.
# TYPE holdfast_queue_alarm_open gauge
holdfast_queue_alarm_open{queue="mail",alarm="dead-letters"} 1
holdfast_queue_alarm_open{queue="mail",alarm="oldest-age"} 0
"""
