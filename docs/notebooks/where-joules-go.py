# %% [markdown]
# # Where do the joules of a chat go?
#
# 300 transactions of a chat in SQLite were recorded with what they wrote, once with a write-ahead log and once with a journal
# that is deleted each time ([recordings](../../recordings/README.md)). Here both are made again on three simulated devices.
#
# `scripts/run-notebooks` runs this page; it begins in the directory of the sources.

# %%
import pandas as pd
import joulefs as jf

pd.set_option("display.width", 120, "display.precision", 3)
wal = jf.trace("recordings/chat-wal.rec")
wal.stat().operations.set_index("op").T

# %% [markdown]
# Every device is a run. What a run depends on and what came of it is a row of `runs()`.

# %%
devices = ["kirin9000-ufs31", "galaxy-nexus-emmc", "laptop-disk-4200"]
r = wal.replay(profile=devices)
r.runs()[["run", "joules", "seconds", "flushes", "blocks_written", "write_amplification_of_device"]]

# %% [markdown]
# `energy()` has a row for each run, file, cause and component. Whole picojoules stand beside the joules: their sum is the
# account's total, exactly.

# %%
e = r.energy()
assert all(e.groupby("run", sort=False)["pj"].sum() == r.runs().set_index("run")["total_pj"])
e.pivot_table("joules", "cause", "run", "sum")[devices]

# %%
shares = e.pivot_table("joules", "run", "component", "sum").loc[devices]
shares = shares.div(shares.sum(axis=1), axis=0)
shares.plot.barh(stacked=True, figsize=(8, 2.4), xlabel="share of the joules").legend(loc="upper left", bbox_to_anchor=(1, 1));

# %% [markdown]
# On the phones most is the board's, which waits, and the processor's. The profile of the disk has no host: all is the disk's,
# which turns. Which of the database's files is it?

# %%
phone = e[e["run"] == "kirin9000-ufs31"]
phone.groupby("owner")["joules"].sum().sort_values(ascending=False).mul(1000).round(2).rename("mJ").to_frame()

# %% [markdown]
# The same chat with the other journal costs more than twice as much, and `timeline()` says when.

# %%
both = {name: jf.replay(f"recordings/chat-{name}.rec", profile="kirin9000-ufs31") for name in ("wal", "delete")}
{name: round(float(one.runs()["joules"].iloc[0]), 3) for name, one in both.items()}

# %%
axes = None
for name, one in both.items():
    axes = one.timeline().plot(x="time_s", y="joules", label=name, ax=axes, figsize=(8, 3),
                               xlabel="time (s)", ylabel="energy so far (J)")

# %% [markdown]
# How long did an `fdatasync` take?

# %%
rows = [one.latency().assign(run=name) for name, one in both.items()]
times = pd.concat(rows).query("kind == 'fdatasync'").set_index("run")
(times[["mean_ns", "p50_ns", "p99_ns", "max_ns"]] / 1e6).rename(columns=lambda c: c.replace("_ns", " ms")).round(2)
