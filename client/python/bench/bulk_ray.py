#!/usr/bin/env python3
"""castor.ray.Embed on a local Ray cluster: one actor, two, an actor and the server killed, and a
driver killed, whose rows Ray's checkpoints keep.

bulk_ray.py MODEL VOCABULARY [TEXTS [ROUNDS [SERVER-FLAG...]]]    CASTOR_SERVER_PROGRAM names it
bulk_ray.py resume MODEL VOCABULARY [TEXTS]
Ray starts processes meanwhile, which take seconds of processors: rates need many texts.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import bulk
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

# The newer reader makes one task of ten small files, which is work for one actor alone.
os.environ["RAY_DATA_USE_DATASOURCE_V2"] = "0"
FLAGS = ["--device=cpu", "--cost-model-budget=0s"]
FILES = 10  # each is a task of Ray's


def write(folder, vocabulary, count):
    folder.mkdir()
    made, step = bulk.texts(vocabulary, count, 77), count // FILES
    for number in range(FILES):
        rows = {
            "id": [*range(number * step, (number + 1) * step)],
            "text": made[number * step : (number + 1) * step],
        }
        pq.write_table(pa.table(rows), folder / f"{number}.parquet", row_group_size=1000)
    return step * FILES


def job(source, target, model, actors, checkpoint=None, batch=128):
    """Returns rows a second, from the first batch that was done to the last."""
    import ray.data

    from castor.ray import Embed

    class Timed(Embed):
        async def __call__(self, batch):
            table = await super().__call__(batch)
            when = np.full(len(table), time.time())
            return table.append_column("done", [when]).drop_columns(["text"])

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    if checkpoint:
        from ray.data.checkpoint import CheckpointConfig

        context.checkpoint_config = CheckpointConfig(
            id_column="id", checkpoint_path=str(checkpoint), delete_checkpoint_on_success=False
        )
    ray.data.read_parquet(str(source), override_num_blocks=FILES).map_batches(
        Timed,
        fn_constructor_kwargs={"model": model, "flags": FLAGS},
        batch_format="pyarrow",
        batch_size=batch,
        compute=ray.data.ActorPoolStrategy(size=actors),
        num_cpus=0.5,
    ).write_parquet(str(target))
    done = np.sort(pq.read_table(target, columns=["done"])["done"].to_numpy())
    first = np.searchsorted(done, done[0], side="right")
    return (len(done) - first) / max(done[-1] - done[0], 1e-9)


def check(target, want):
    table = pq.read_table(target)
    order = np.argsort(table["id"].to_numpy())
    ids = table["id"].to_numpy()[order]
    assert (ids == np.arange(len(want))).all(), f"{len(ids)} rows, {len(set(ids))} ids"
    rows = table["embedding"].combine_chunks().flatten().to_numpy().reshape(len(ids), -1)[order]
    assert (rows == want).all(), "other vectors"
    assert table["error"].null_count == len(ids)


def find(*words):
    return [
        each.pid
        for each in psutil.process_iter(["cmdline"])
        if all(word in " ".join(each.info["cmdline"] or ()) for word in words)
    ]


def main(model, vocabulary, count="6000", rounds="3", *flags):
    import ray

    FLAGS.extend(flags)
    count = int(count)
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
        logging_level="ERROR",
    )
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        source = scratch / "in"
        count = write(source, vocabulary, count)
        from castor.ray import _Node

        node = _Node([os.path.abspath(model), *FLAGS])  # keeps the server between the jobs
        address = node.address()
        print("server", address, flush=True)
        one, two, own = [], [], []
        for number in range(int(rounds)):
            own.append(bulk.embed(source, scratch / f"own{number}", "--servers", address)[0])
            one.append(job(source, scratch / f"one{number}", model, 1, batch=1024))
            two.append(job(source, scratch / f"two{number}", model, 2, batch=1024))
            print(
                number,
                f"castor-embed {own[-1]:.1f}, one actor {one[-1]:.1f}, two {two[-1]:.1f} texts/s",
                flush=True,
            )
        table = pq.read_table(scratch / "own0" / "rows").sort_by("id")
        want = table["embedding"].combine_chunks().flatten().to_numpy().reshape(count, -1)
        for name in ("one0", "two0"):
            check(scratch / name, want)
        bulk.table("one actor against castor-embed", list(zip(one, own)))
        bulk.table("two actors against castor-embed", list(zip(two, own)))
        bulk.table("two actors against one", list(zip(two, one)))
        for what in (("ray::MapWorker",), ("castor-server --listen unix", model)):
            target = scratch / what[0].split()[0].replace(":", "")
            killed = []

            def kill(what=what, target=target, killed=killed):
                while not list(target.glob("*.parquet")):
                    time.sleep(0.05)
                os.kill(find(*what)[0], signal.SIGKILL)
                killed.append(len(list(target.glob("*.parquet"))))

            threading.Thread(target=kill).start()
            job(source, target, model, 2)
            assert killed and killed[0] < FILES, killed
            check(target, want)
            print(
                f"killed {what[0]} after {killed[0]} of {FILES} files: each id once, the same "
                "bytes",
                flush=True,
            )

    ray.shutdown()


def driver(source, target, model, checkpoint):
    import ray

    ray.init(
        num_cpus=4,  # Ray's filter of rows that are done takes one, too
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
        logging_level="ERROR",
    )
    job(source, target, model, 2, checkpoint)
    ray.shutdown()


def resume(model, vocabulary, count="6000"):
    """A driver that is killed, and one that goes on."""
    with tempfile.TemporaryDirectory() as scratch:
        scratch, count = Path(scratch), int(count)
        source, target = scratch / "in", scratch / "out"
        count = write(source, vocabulary, count)
        target.mkdir()
        (scratch / "marks").mkdir()
        command = [sys.executable, __file__, "driver", source, target, model, scratch / "marks"]
        first = subprocess.Popen(command)
        while len(list(target.glob("*.parquet"))) < 3:
            assert first.poll() is None
            time.sleep(0.2)
        first.kill()
        first.wait()
        time.sleep(5)  # Ray ends what the driver had
        before = pq.read_table(target).num_rows
        subprocess.run(command, check=True)
        ids = sorted(pq.read_table(target, columns=["id"])["id"].to_pylist())
        print(
            f"a driver killed after {before} rows; the next one: {len(ids)} rows, "
            f"{len(set(ids))} ids of {count}"
        )
        assert ids == list(range(count))


if __name__ == "__main__":
    if sys.argv[1] in ("driver", "resume"):
        globals()[sys.argv[1]](*sys.argv[2:])
    else:
        main(*sys.argv[1:])
