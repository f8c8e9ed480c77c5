"""Slots on a GPU: every learner reads its own bytes, in whatever order streams run, and waits for nothing itself."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpibow.cuda.device.machine import DeviceMemory
from mpibow.cuda.feed.feeder import AT_ONCE, DeviceSlot, Feeder, pack
from mpibow.errors import DeviceError
from tests.cuda.device.fakes import gpu
from tests.cuda.device.simulated import SimDriver

SPECS = {
    "image": ((2, 3, 5), np.dtype(np.uint8)),
    "label": ((2,), np.dtype(np.int32)),
    "counter": ((2, 4), np.dtype(np.uint32)),
}


def feeder_on(driver: SimDriver) -> Feeder:
    return Feeder(driver, driver.machine.device, DeviceMemory(driver, gpu(0)))


def test_packing():
    packing = pack(SPECS, ["label", "counter"])
    assert packing.begins == {"label": 0, "counter": 256, "image": 512}
    assert (packing.sent, packing.size) == (512, 768)
    assert pack(SPECS, SPECS).begins == {"image": 0, "label": 256, "counter": 512}
    assert pack(SPECS, SPECS).sent == pack(SPECS, SPECS).size == 768
    with pytest.raises(AssertionError, match="weight"):
        pack(SPECS, ["weight"])


@given(st.lists(st.integers(0, 600), min_size=1, max_size=5), st.data())
def test_packed_arrays_share_no_bytes(lengths, data: st.DataObject):
    specs = {f"{i}": ((length,), np.dtype(np.uint16)) for i, length in enumerate(lengths)}
    sent = data.draw(st.sets(st.sampled_from(sorted(specs))))
    packing = pack(specs, sent)
    block = np.zeros(packing.size, np.uint8)
    views = packing.views(block)
    for number, view in enumerate(views.values(), start=1):
        assert view.flags.writeable
        view += number
    for number, (name, view) in enumerate(views.items(), start=1):
        assert view.tolist() == [number] * lengths[int(name)]
        assert packing.begins[name] % 256 == 0
        end = packing.begins[name] + view.nbytes
        assert end <= packing.sent if name in sent else (packing.begins[name] >= packing.sent and end <= packing.size)
    assert list(packing.views(block, sent)) == list(sent)


def run(driver: SimDriver, learners: int = 2, slots: int = 2, batches: int = 8, sent=SPECS) -> list[list[int]]:
    """What learners saw of batches t = 0, 1, ..., whose bytes are 1 + t; each has `slots` slots, in turns."""
    feeder = feeder_on(driver)
    packing = pack(SPECS, sent)
    rings = [[feeder.slot(packing) for _ in range(slots)] for _ in range(learners)]
    streams = [driver.stream() for _ in range(learners)]
    inputs = [np.zeros(packing.size, np.uint8) for _ in range(learners)]
    seen = [[] for _ in range(learners)]

    def compute(j: int) -> None:
        block, batch = inputs[j], packing.views(inputs[j])
        driver.copy(block, slot.block, streams[j])
        streams[j].enqueue(
            lambda: seen[j].append(int(np.unique(np.concatenate([*map(np.ravel, batch.values())])).sum()))
        )

    for t in range(batches):
        for j in range(learners):
            slot = rings[j][t % slots]
            slot.renew()
            for array in slot.host.values():
                array[...] = 1 + t
            slot.open()
            slot.send()
            for name in set(SPECS) - set(sent):  # what is filled on the device
                array = slot.arrays[name]
                feeder.stream.enqueue(lambda array=array, t=t: array.fill(1 + t))
            slot.seal()
            slot.await_on(streams[j])
            compute(j)
            slot.release(streams[j])
    driver.machine.finish()
    return seen


@given(
    st.integers(0, 1 << 30), st.integers(1, 4), st.integers(1, 3),
    st.sampled_from([[*SPECS], ["counter"], ["label", "counter"]]),
)  # fmt: skip
@settings(max_examples=60)
def test_every_batch_comes_whole_and_in_order(seed, learners, slots, sent):
    assert run(SimDriver(seed), learners, slots, 8, sent) == [list(range(1, 9))] * learners


@pytest.mark.parametrize("missing", ["renew", "open", "await_on"])
def test_without_any_one_wait_bytes_are_wrong(missing, monkeypatch):
    monkeypatch.setattr(DeviceSlot, missing, lambda *_: None)
    wrong = [seed for seed in range(20) if run(SimDriver(seed)) != [list(range(1, 9))] * 2]
    assert len(wrong) >= 5, wrong


def test_learners_do_not_wait_on_the_host():
    driver = SimDriver()
    feeder = feeder_on(driver)
    slot = feeder.slot(pack(SPECS, SPECS))
    slot.renew()  # the first time there is nothing to wait for
    slot.send()
    slot.seal()
    stream = driver.stream()
    slot.await_on(stream)
    slot.release(stream)
    assert driver.machine.waits == []
    assert driver.machine.clock == 0  # nothing has run
    slot.renew()
    assert driver.machine.waits == [threading.current_thread().name]


def test_an_open_slot_waits_once():
    driver = SimDriver()
    feeder = feeder_on(driver)
    slot, stream = feeder.slot(pack(SPECS, SPECS)), driver.stream()
    for _ in range(2):
        slot.open()
        slot.send()
        slot.seal()
        slot.await_on(stream)
        slot.release(stream)
    kinds = [kind for kind, _ in feeder.stream.queue]
    assert kinds == ["work", "record", "wait", "work", "record"]
    assert [kind for kind, _ in stream.queue] == ["record", "wait", "record"] * 2


def test_slots_are_cut_from_few_blocks_and_one_copy_takes_what_is_sent():
    driver = SimDriver()
    feeder = feeder_on(driver)
    packing = pack(SPECS, ["label", "counter"])
    slots = [feeder.slot(packing) for _ in range(AT_ONCE + 1)]
    assert list(feeder.memory._blocks) == ["slots 0 to 3", "slots 4 to 7"]
    assert feeder.memory.held == 2 * AT_ONCE * 768
    for number, slot in enumerate(slots):
        slot.block[...] = number
        slot.host["label"][...] = number
    assert [(set(slot.block.tolist()), set(slot.host["label"].tolist())) for slot in slots] == [
        ({number}, {number}) for number in range(AT_ONCE + 1)
    ]
    assert set(slots[0].host) == {"label", "counter"}
    slots[1].send()
    assert driver.copied == 512
    feeder.close()
    assert feeder.memory.held == 0
    assert slots[1].arrays["label"].tolist() == [1, 1]  # what was under way has come


def test_memory_that_cannot_be_locked():
    with pytest.raises(
        DeviceError, match=r"^slots 0 to 3: the system cannot lock 3\.0 KiB of memory for the GPU's copies"
    ):
        feeder_on(SimDriver(lockable=100)).slot(pack(SPECS, SPECS))


def test_what_is_waited_for_on_the_device():
    """Learner 0 asks at once for what takes 5 ms, learner 1 after 2 ms of other work, when it is there: 5 / 2 ms."""
    driver = SimDriver()
    machine, feeder = driver.machine, feeder_on(driver)
    slots = [feeder.slot(pack(SPECS, SPECS)) for _ in range(2)]
    streams = [driver.stream() for _ in range(2)]
    feeding = feeder.stream
    for _ in range(5):
        feeding.enqueue(lambda: None)
    for slot in slots:
        slot.seal()
    machine.streams = [streams[0]]
    slots[0].await_on(streams[0], 0.5)
    machine.run_until(lambda: len(streams[0].queue) == 1)  # it has asked, and waits
    assert feeder.waited() == 0  # so far
    machine.streams.append(feeding)
    machine.finish()
    assert feeder.waited() == pytest.approx(0.0025)
    machine.streams.append(streams[1])
    for _ in range(2):
        streams[1].enqueue(lambda: None)
    slots[1].await_on(streams[1], 0.5)
    machine.finish()
    assert [feeder.waited() for _ in range(2)] == pytest.approx([0.0025, 0.0025])


def test_a_thread_uses_the_feeders_device():
    driver = SimDriver(device=3)
    feeder = feeder_on(driver)
    with pytest.raises(AssertionError, match="MainThread enqueues on device 3, uses 0"):
        feeder.slot(pack(SPECS, SPECS)).send()
    feeder.attach()
    feeder.slot(pack(SPECS, SPECS)).send()
