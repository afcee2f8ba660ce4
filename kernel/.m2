#!/usr/bin/env bash
# What background cleaning by each policy costs in joules, what is written afterwards costs, and what is held: the patched kernel
# cleans an aged volume by its ioctl until it refuses, one checkpoint a round, and then new small files are written without
# cleaning. The requests of both parts, discards too, taken down by the kernel's own block events, are made again on the
# simulated, metered device, which went through all that was written and discarded while the volume was aged: it is as full
# and as worn as that left it, and copies inside. Prints a row for each seed and policy; docs for the columns are in kernel/README.md.
#
#     JOULEFS=target/release/joulefs kernel/measure [SIZE [MIB_AFTER [SEEDS]]]
#
# With THREAD=1 the background thread cleans instead of the ioctl; GCs are then its calls, those that found nothing too.
#
# With HOLD=SEGMENTS instead: that many MiB of files are overwritten in small pieces, and between turns of 10 MiB each policy
# cleans until so many segments more are free than at the beginning, or it refuses. All of it is in the first price.
# Two rows more ask joule for these segments by gc_keep_free.
#
# With USED=1 the volume has seen two uses before it is cleaned, each of as many new files as are written afterwards, which
# are deleted again: what joule goes by. They are in no price.
#
# With LATER=N there are N uses after cleaning, each of as many new files, which are deleted before the next.
#
# With FLASH=new the device begins empty.
#
# ONLY=REGEX leaves out policies whose names it does not match.
set -euo pipefail
cd "$(dirname "$0")/.."
size=${1:-1G} after=${2:-175} seeds=${3:-1 2 3}
joulefs=$(realpath "${JOULEFS:-target/release/joulefs}")
linux=${JOULEFS_LINUX_PATCHED:-$PWD/target/kernel/linux-patched}
[ -x "$linux" ] || { echo "no kernel at $linux: run make kernel" >&2; exit 1; }
profile=${PROFILE:-kirin9000-ufs31}
# MiB of the guest. A twelfth is for events; large volumes have more.
memory=${MEMORY:-1536}
recipe=${RECIPE:-phone-year}
# Not in /tmp, where the guest has a place of its own.
mkdir -p target/kernel
work=$(mktemp -d -p "$PWD/target/kernel")
# Images of large volumes may lie in memory.
image=$(mktemp -p "${IMAGES:-$work}")
trap 'rm -rf "$work" "$image"' EXIT

# NAME|mount options|knobs
policies=(
    'none||'
    'cost-benefit|,gc_policy=cost_benefit|'
    'cost-benefit, stop 50|,gc_policy=cost_benefit|gc_frag_ratio=50'
    'ATGC|,atgc|'
    'ATGC, stop 50|,atgc|gc_frag_ratio=50'
    'FAGC|,atgc,gc_policy=fagc|gc_frag_ratio=50 gc_frag_target=1'
    'FAGC, fullest target|,atgc,gc_policy=fagc|gc_frag_ratio=50'
    'joule|,gc_policy=joule|'
    'joule, asked|,gc_policy=joule|gc_keep_free=hold'
    'joule, holes|,atgc,gc_policy=joule|'
    'joule, holes, asked|,atgc,gc_policy=joule|gc_keep_free=hold'
    # Told that the device copies nothing inside, as one that begins empty.
    'joule, no copies|,gc_policy=joule|gc_price_copy_inside=0'
)

cat >"$work/init" <<'END'
#!/bin/sh
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmp /tmp; mount -t tracefs trace /sys/kernel/tracing
# What the kernel does not know of its command line is in the environment.
. "$job"
T=/sys/kernel/tracing S=/sys/fs/f2fs/ubda
echo $BUFFER >$T/buffer_size_kb
mkdir /tmp/m
mount -t f2fs -o background_gc=off$OPTIONS /dev/ubda /tmp/m || { echo o >/proc/sysrq-trigger; sleep 9; }
free=$(cat $S/free_segments)
# The number of sections is in the superblock.
sections=$(od -An -tu4 -j1068 -N4 /dev/ubda)
# The kernel discards when the volume rests. Nothing rests here, so it may at once; runs of 16 blocks and more, as on a
# phone: on a volume of up to 16 GiB it would discard single blocks.
echo 0 >$S/discard_io_aware; echo 16 >$S/discard_granularity
echo 10 >$S/min_discard_issue_time; echo 20 >$S/mid_discard_issue_time; echo 50 >$S/max_discard_issue_time
# Until what can be discarded is.
[ $(cat /sys/block/ubda/queue/discard_max_bytes) -ge 2097152 ] || echo "the disk takes discards in pieces: build the kernel anew" >$OUT/wrong
settle() {
    sync
    last=
    while now=$(cat $S/stat/issued_discard); [ "$now" != "$last" ]; do last=$now; sleep 0.15; done
}
for knob in $KNOBS; do
    value=${knob#*=}
    [ "$value" != hold ] || value=$((((free + HOLD) * 100 + sections - 1) / sections))
    echo $value >$S/${knob%%=*}
done
# fresh DIRECTORY MIB SEED: new files of 4 to 64 KiB.
fresh() {
    perl -e '
    srand $ARGV[2]; my ($left, $n) = ($ARGV[1] << 20, 0);
    while ($left > 0) {
        mkdir $ARGV[0] unless $n; my $size = 4096 * (1 + int rand 16);
        open F, ">", "$ARGV[0]/$n" or die "$!"; print F "x" x $size or die "$!"; close F or die "$!";
        $left -= $size; system "sync" if ++$n % 256 == 0;
    }' $1 $2 $3
}
echo 1 >$T/events/block/block_rq_issue/enable; echo 1 >$T/events/block/block_rq_complete/enable
echo >$T/trace
if [ -n "$USED" ]; then
    for n in 1 2; do
        fresh /tmp/m/use $AFTER $n || echo "not all was written" >&2
        rm -rf /tmp/m/use; settle
        # Who asks for cleaning says that the volume rests. One use known, joule refuses; the second ends where cleaning begins.
        case $n$OPTIONS in 1*joule*) perl -e 'open F, "<", "/tmp/m" or die; ioctl F, 0x4004f506, my $a = pack "I", 0' ;; esac
    done
    settle
    free=$(cat $S/free_segments)
fi
cat $T/trace >$OUT/used.trace; echo >$T/trace
rounds=0
clean() {
    [ "$NAME" != none ] || return 1
    perl -e 'open F, "<", "/tmp/m" or die; ioctl F, 0x4004f506, my $a = pack "I", 0 or exit 1' || return 1
    sync
    rounds=$((rounds + 1))
    echo "$rounds $(cat $S/free_segments) $(cat $S/moved_blocks_background) $(cat /proc/uptime)" >>$OUT/progress
}
if [ -n "$HOLD" ]; then
    # Files are overwritten in pieces, out of place, and between the pieces cleaning holds so many segments free.
    echo 0 >$S/ipu_policy
    for turn in $(seq $((AFTER / 10))); do
        perl -e '
            use File::Find; srand $ARGV[0]; my @f;
            find({ wanted => sub { push @f, $File::Find::name if -f && -s _ >= 16384 }, preprocess => sub { sort @_ } }, "/tmp/m");
            for (my $left = 10 << 20; $left > 0;) {
                my $f = $f[int rand @f]; my $n = 1 + int rand 4;
                open F, "+<", $f or die "$f: $!"; seek F, 4096 * int(rand(int((-s $f) / 4096) - $n + 1)), 0;
                print F "y" x (4096 * $n); close F or die "$!"; $left -= 4096 * $n;
            }' $turn
        sync
        while [ $(cat $S/free_segments) -lt $((free + HOLD)) ]; do clean || break; done
    done
elif [ -n "$THREAD" ]; then
    # The thread itself, awake every few milliseconds, until it has moved nothing and freed nothing for three seconds.
    if [ "$NAME" != none ]; then
        mount -o remount,background_gc=on /tmp/m
        echo 5 >$S/gc_min_sleep_time; echo 10 >$S/gc_max_sleep_time; echo 20 >$S/gc_no_gc_sleep_time
        echo 0 >$S/gc_idle_interval; echo 0 >$S/idle_interval
        # It begins with a sleep of half a minute.
        sleep 31
        last= same=0
        while [ $same -lt 3 ]; do
            sleep 1; sync
            now="$(cat $S/moved_blocks_background) $(cat $S/free_segments)"
            [ "$now" = "$last" ] && same=$((same + 1)) || same=0
            last=$now
        done
        rounds=$(cat $S/gc_background_calls)
        mount -o remount,background_gc=off /tmp/m
    fi
else
    while [ $rounds -lt 20000 ]; do clean || break; done
fi
settle
cat $T/trace >$OUT/gc.trace; echo >$T/trace
held=$(cat $S/free_segments); moved=$(cat $S/moved_blocks_background)
# The ioctl counts as a foreground call.
before=$(cat $S/gc_foreground_calls)
[ -n "$HOLD" ] || for n in $(seq $LATER); do
    rm -rf /tmp/m/new; settle
    fresh /tmp/m/new $AFTER $((98 + n)) || echo "not all was written" >&2
done
settle
cat $T/trace >$OUT/after.trace
foreground=$(($(cat $S/gc_foreground_calls) - before))
lost=$(cat $T/per_cpu/cpu0/stats | sed -n 's/^overrun: //p')
echo "$rounds $moved $((held - free)) $held $foreground $lost" >$OUT/said
umount /tmp/m
echo o >/proc/sysrq-trigger; sleep 9
END
chmod +x "$work/init"

# price RECORDING EARLIER...: millijoules of a recording behind others, the 99th percentile of its writes in microseconds, as
# the modelled device answers them, and how many thousand blocks that copies inside.
price() {
    grep -q block_rq "$1" || { echo 0 0 0; return; }
    local earlier after=()
    for earlier in "${@:2}"; do
        ! grep -qE 'block_rq|write' "$earlier" || after+=(--after "$earlier")
    done
    "$joulefs" trace replay "$1" "${after[@]}" --back-to-back --profile "$profile" --size "$size" --json >"$1.json"
    python3 - "$1.json" <<'PY'
import json, sys
replay = json.load(open(sys.argv[1]))
writes = [row for row in replay["replay"]["latencies"] if row["op"] == "write"]
copied = replay["model"].get("blocks_copied", 0)
print(round(replay["total_pj"] / 1e9), round(writes[0]["p99_ns"] / 1000) if writes else 0, round(copied / 1e3, 1))
PY
}

if [ -n "${HOLD:-}" ]; then
    what="$after MiB overwritten while $HOLD more segments are to be held"
else
    what="${USED:+after two uses of as much, }then ${LATER:+$LATER times }$after MiB of new files${THREAD:+, cleaned by the thread}"
fi
printf '%s, %s, %s; %s%s\n' "$recipe" "$size" "$what" "$profile" "${FLASH:+, $FLASH}"
printf '%-4s %-22s %6s %8s %6s %6s %8s %9s %8s %9s %4s %9s %9s\n' seed policy GCs moved won held 'mJ GC' 'mJ after' 'mJ all' 'p99 us' FGGC \
    'k copied' 'k after'
for seed in $seeds; do
    # The volume is kept. Files' contents are left out: nobody looks at them.
    aged=target/kernel/aged/$recipe-$size-$seed
    if ! [ -e "$aged" ]; then
        mkdir -p target/kernel/aged
        "$joulefs" age --recipe "$recipe" --size "$size" --seed "$seed" --hollow --writes "$work/aged.writes" "$work/aged" >/dev/null
        mv "$work/aged.writes" "$aged.writes"
        mv "$work/aged" "$aged"
    fi
    for policy in "${policies[@]}"; do
        IFS='|' read -r name options knobs <<<"$policy"
        [[ $name =~ ${ONLY:-.} ]] || continue
        [ -n "${HOLD:-}" ] || [[ $knobs != *=hold ]] || continue
        cp --sparse=always "$aged" "$image"
        printf "NAME='%s' OPTIONS='%s' KNOBS='%s' OUT='%s' AFTER=%s HOLD=%s THREAD=%s USED=%s LATER=%s BUFFER=%s\n" "$name" "$options" "$knobs" "$work" "$after" "${HOLD:-}" "${THREAD:-}" \
            "${USED:-}" "${LATER:-1}" $((memory * 85)) >"$work/job"
        timeout 1500 "$linux" mem="${memory}M" root=/dev/root rootfstype=hostfs rootflags=/ rw quiet init="$work/init" job="$work/job" \
            ubda="$image" con=null con0=null,fd:1 </dev/null >"$work/console" 2>&1 || true
        [ ! -e "$work/wrong" ] || { cat "$work/wrong" >&2; exit 1; }
        [ -s "$work/said" ] || { cat "$work/console" >&2; exit 1; }
        read -r rounds moved won held foreground lost <"$work/said"
        [ "$lost" = 0 ] || { echo "the kernel's buffer lost $lost events" >&2; exit 1; }
        fsck.f2fs --dry-run "$image" >"$work/fsck" 2>&1 || { cat "$work/fsck" >&2; exit 1; }
        before=("$work/used.trace")
        [ "${FLASH:-}" = new ] || before=("$aged.writes" "${before[@]}")
        read -r gc slow copied < <(price "$work/gc.trace" "${before[@]}")
        later=0 copied_later=0
        [ -n "${HOLD:-}" ] || read -r later slow copied_later < <(price "$work/after.trace" "${before[@]}" "$work/gc.trace")
        printf '%-4s %-22s %6s %8s %6s %6s %8s %9s %8s %9s %4s %9s %9s\n' "$seed" "$name" "$rounds" "$moved" "$won" "$held" "$gc" "$later" \
            $((gc + later)) "$slow" "$foreground" "$copied" "$copied_later"
        rm -f "$work/said" "$image"
    done
done
