# SPDX-License-Identifier: GPL-2.0-or-later
"""The disk as a power cut leaves it, from a log of everything that was written to it (QEMU's blklogwrites driver).

A disk with a volatile cache promises one thing: what was written before a flush is there after it. So at a cut after entry K of the
log, all that precedes the last flush is on the disk, and of what came later any part may be, down to the sector.

The first MiBs are no part of the file system: events.py writes there, past every cache, what had been begun and what had been
answered. Those sectors are always kept, so that each image says by itself what must be true of it.
"""
import os
import random
import struct

SECTOR = 512
EVENTS_SIZE = 4 << 20  # of the disk, before the file system
FLUSH, FUA, DISCARD = 1, 2, 4
# What survives of the writes since the last flush.
MODELS = ("none", "all", "some writes", "some sectors")


class Write:
    __slots__ = ("offset", "size", "log", "flags")

    def __init__(self, offset, size, log, flags):
        self.offset, self.size, self.log, self.flags = offset, size, log, flags


def read_log(path):
    """The entries in the order of their completion. The count in the head may be older than the log's end (QEMU was killed)."""
    entries = []
    with open(path, "rb") as f:
        magic, version, _count, sector = struct.unpack("<QQQI", f.read(28))
        assert magic == 0x6A736677736872 and version == 1, "not a log of writes"
        position, size = sector, os.fstat(f.fileno()).st_size
        while position + 32 <= size:
            f.seek(position)
            start, sectors, flags, _data = struct.unpack("<QQQQ", f.read(32))
            if sectors == 0 and flags == 0:
                break
            length = 0 if flags & DISCARD else sectors * sector
            if position + sector + length > size:
                break
            entries.append(Write(start * sector, length, position + sector, flags))
            position += sector + length
    return entries


def is_event(entry):
    return entry.size > 0 and entry.offset < EVENTS_SIZE


def events_of(entries, log_path):
    """[(index in the log, text)] of every event."""
    with open(log_path, "rb") as f:
        found = []
        for i, entry in enumerate(entries):
            if is_event(entry):
                f.seek(entry.log)
                found.append((i, f.read(entry.size).split(b"\0")[0].decode()))
        return found


class Disk:
    """Moves forward through the log: `base` holds what is safe, an image of a cut is made beside it."""

    def __init__(self, log_path, base_path):
        self.entries = read_log(log_path)
        self.log = open(log_path, "rb")
        self.base_path = base_path
        self.base = open(base_path, "r+b")
        self.done = 0  # entries before this one are in the base

    def apply(self, file, entry, pieces=None):
        """`pieces`: (from, to) within the entry. A discarded place may hold anything: it keeps what it has."""
        for begin, end in pieces or [(0, entry.size)]:
            self.log.seek(entry.log + begin)
            data = self.log.read(end - begin)
            file.seek(entry.offset + begin)
            file.write(data)

    def advance(self, cut):
        """Everything that a flush before `cut` made safe goes into the base. Returns the rest, in order."""
        safe = max((i + 1 for i in range(self.done, cut) if self.entries[i].flags & FLUSH), default=self.done)
        for entry in self.entries[self.done:safe]:
            self.apply(self.base, entry)
        self.done = safe
        self.base.flush()
        return self.entries[safe:cut]

    def cut(self, cut, seed, image_path):
        """Writes the image of a cut just before entry `cut`. Cuts must not go backwards. Returns the model that was taken."""
        chance = random.Random(seed)
        model = MODELS[seed % len(MODELS)]
        rest = self.advance(cut)
        copy_sparse(self.base_path, image_path)
        with open(image_path, "r+b") as image:
            for entry in rest:
                if is_event(entry) or entry.flags & FUA or model == "all" or (model == "some writes" and chance.random() < 0.5):
                    self.apply(image, entry)
                elif model == "some sectors":
                    sectors = [s for s in range(0, entry.size, SECTOR) if chance.random() < 0.5]
                    self.apply(image, entry, [(s, s + SECTOR) for s in sectors])
        return "%s of %d unflushed writes" % (model, sum(1 for e in rest if e.size and not is_event(e)))


def copy_sparse(source, target):
    with open(source, "rb") as a, open(target, "wb") as b:
        size = os.fstat(a.fileno()).st_size
        b.truncate(size)
        at = 0
        while at < size:
            try:
                at = os.lseek(a.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(a.fileno(), at, os.SEEK_HOLE)
            while at < end:
                n = os.sendfile(b.fileno(), a.fileno(), at, min(end - at, 64 << 20)) if b.seek(at) is not None else 0
                if n == 0:
                    return
                at += n


def choose(entries, log_path, count, seed):
    """Cut points: half of them right behind an answer, where nothing has yet had time to reach the disk by itself, half anywhere
    from the first start of hostd to the last event."""
    chance = random.Random(seed)
    events = events_of(entries, log_path)
    answers = [i + 1 for i, text in events if '"end"' in text]
    first, last = 1, events[-1][0] + 1
    chosen = set(chance.sample(answers, min(count // 2, len(answers))))
    while len(chosen) < count and len(chosen) < last - first:
        chosen.add(chance.randrange(first, last + 1))
    return sorted(chosen)


def main():
    import sys
    if sys.argv[1] == "show":
        entries = read_log(sys.argv[2])
        print("%d entries, %d flushes, %d events" % (len(entries), sum(1 for e in entries if e.flags & FLUSH), len(events_of(entries, sys.argv[2]))))
    else:
        log, base, point, seed, image = sys.argv[2:7]
        print(Disk(log, base).cut(int(point), int(seed), image))


if __name__ == "__main__":
    main()
