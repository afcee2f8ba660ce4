# %% [markdown]
# # Is it the policy, or the seed?
#
# Cleaning is compared on a volume that is nearly full and worn. Such a volume is made by a recipe, which draws from a seed:
# another seed makes another volume, equally worn. A difference between policies that is smaller than the one between seeds
# says nothing.
#
# `scripts/run-notebooks` runs this page; it begins in the directory of the sources.

# %%
import pandas as pd
import joulefs as jf

pd.set_option("display.width", 120, "display.precision", 3)
s = jf.sweep("recordings/editor.rec", gc=["greedy", "atgc", "fagc"], seed=range(1, 9),
             age="full-fragmented", size="256M", hurry=True, repeat=2)
s

# %% [markdown]
# Of every comparison of who cleans, the program makes controls, in which nobody does: one for each seed. A run has a key, by
# which the cache knows it.

# %%
s.status().groupby("gc", dropna=False).size().rename("runs").to_frame()

# %%
runs = s.run().runs()
runs[["run", "joules", "against_control", "sections_cleaned", "blocks_moved", "free_segments_held"]].iloc[[0, 8, 16, 24]]

# %% [markdown]
# Each run beside its own control, the same volume on which nobody cleaned: mean and spread over the seeds.

# %%
cleaned = runs.dropna(subset=["against_control"])
by_policy = cleaned.groupby("gc")["against_control"].agg(["mean", "std", "min", "max"]).mul(100).round(1)
by_policy.rename(columns=lambda c: f"{c} %")

# %%
cleaned.pivot(index="seed", columns="gc", values="against_control").mul(100).plot.bar(
    figsize=(8, 3), ylabel="% beyond no cleaning", rot=0).legend(loc="upper left", bbox_to_anchor=(1, 1));

# %% [markdown]
# The spread over the seeds is larger than what lies between two policies: means of different volumes would say nothing. On one
# and the same volume the difference is the policies' own.

# %%
beyond = cleaned.pivot(index="seed", columns="gc", values="joules")
(beyond["fagc"] / beyond["greedy"] - 1).mul(100).describe().round(1).rename("fagc beside greedy, %").to_frame().T

# %% [markdown]
# ATGC goes by age only on a volume that was mounted for seven days, as in the kernel; on this one it chose as cost-benefit
# does, and `began_waits_for_age` says so.

# %%
runs.groupby("gc")["began_waits_for_age"].all()

# %% [markdown]
# What was bought with it: free segments. A policy is worth its joules by those that it holds beyond the control.

# %%
held = runs.assign(gc=runs["gc"].fillna("none")).groupby("gc")[["joules", "free_segments_held", "blocks_moved"]].mean()
held.sort_values("joules").round(2)

# %% [markdown]
# Numbers of the device's profile are compared in the same way. Nobody published how many planes this phone's flash has, so it is
# assumed: how far does it move the result?

# %%
more = jf.sweep("recordings/editor.rec", gc=["atgc", "fagc"], seed=[1, 2], assume={"device.nand.planes": [1, 2, 4]},
                age="full-fragmented", size="256M", hurry=True, repeat=2)
of_planes = more.run().runs()
of_planes.assign(gc=of_planes["gc"].fillna("none")).pivot_table("joules", "device.nand.planes", "gc", "mean").round(3)
