# What recordings are made of: functions for the guest. Each prints lines that begin with @@ for the host.
TRACE=/sys/kernel/tracing
S=/sys/fs/f2fs/$DISK
KNOBS="max_victim_search min_ssr_sections atgc_age_threshold atgc_age_weight atgc_candidate_count
atgc_candidate_ratio reserved_blocks migration_granularity gc_frag_ratio gc_frag_target
gc_request_cost"

up() { cut -d ' ' -f 1 /proc/uptime | tr -d .; }

# The blocks of the segment table, as they lie on the disk.
table() {
    echo "@@table $(up)"
    set -- $WINDOW
    while [ $# -gt 0 ]; do
        dd if=/dev/$DISK bs=4096 skip=$1 count=$2 iflag=direct 2>/dev/null
        shift 2
    done
}

# What the tracepoints said since they were last asked.
told() {
    grep -E ' f2fs_(get_victim|victim_frag|gc_begin|gc_end|write_checkpoint): ' $TRACE/trace || true
    echo >$TRACE/trace
}

# The kernel counts mounted time in whole seconds: nothing is to begin shortly before one ends.
second() {
    while :; do
        u=$(up)
        [ ${#u} -gt 2 ] && u=${u#"${u%??}"}
        [ "${u#0}" -lt 40 ] && break
        sleep 0.03
    done
}

# mnt OPTIONS
mnt() {
    echo "@@mount $1"
    table
    second
    a=$(up)
    mount -t f2fs -o "$1" /dev/$DISK $MNT
    echo 1000000 >$S/cp_interval
    echo "@@mounted $a $(up) $(cat $S/mounted_time_sec)"
    for k in $KNOBS; do [ -e $S/$k ] && echo "@@knob $k $(cat $S/$k)"; done
    told
}

# knob NAME VALUE
knob() {
    echo "$2" >$S/$1
    echo "@@set $1 $2"
}

# clean background|foreground: one call of the file system's own ioctl.
clean() {
    echo "@@do clean $1"
    [ $1 = foreground ] && sync=1 || sync=0
    perl -e 'open F, "<", $ENV{MNT} or die; my $a = pack "I", shift; ioctl F, 0x4004f506, $a or print "\@\@failed $!\n"' $sync
    told
}

# fill NAME MIB: writes a new file whose name's ending decides about its temperature, and waits for it.
fill() {
    echo "@@do write $2 MiB to a new file $1"
    dd if=/dev/zero of=$MNT/$1 bs=1M count=$2 conv=fsync 2>/dev/null || echo "@@failed dd"
    told
}

# files NAME COUNT: makes as many files of one block and syncs.
files() {
    echo "@@do make $2 files $1"
    perl -e 'for (1 .. $ARGV[1]) { open F, ">", "$ENV{MNT}/$ARGV[0]$_" or print("\@\@failed $!\n"), last; print F "x" x 4000; close F }' $1 $2
    sync
    told
}

# directories NAME COUNT: as many directories, and syncs.
directories() {
    echo "@@do make $2 directories $1"
    perl -e 'for (1 .. $ARGV[1]) { mkdir "$ENV{MNT}/$ARGV[0]$_" or print("\@\@failed $!\n"), last }' $1 $2
    sync
    told
}

# wear SEED COUNT: overwrites pieces of files at places that depend on SEED, and syncs. On a volume under 16 GiB Linux
# would write in place.
wear() {
    knob ipu_policy 0
    echo "@@do overwrite $2 pieces of files, seed $1"
    perl -e '
        srand shift; my @f;
        for my $d ($ENV{MNT}, map "$ENV{MNT}/d$_", 0 .. 7) {
            opendir D, $d or next; push @f, grep { -f && -s _ > 8192 } map "$d/$_", sort(readdir(D));
        }
        for (1 .. shift) {
            my $f = $f[int rand @f]; my $n = int((-s $f) / 4096);
            open F, "+<", $f or next; seek F, 4096 * int(rand $n), 0; print F "y" x (4096 * (1 + int rand 8)); close F;
        }' $1 $2
    sync
    told
}

# A checkpoint, and what it says.
state() {
    sync
    told
    echo "@@state"
    table
    echo "@@logs"
    grep -E 'Pinned file|ATGC' /sys/kernel/debug/f2fs/status
    echo "@@marked"
    tail -n +2 /proc/fs/f2fs/$DISK/victim_bits
    echo "@@state-ends"
}

umnt() {
    umount $MNT
    told
    echo "@@unmounted"
}

# The script alone decides when files are written and checkpoints made. The flusher would come five seconds after the first page is
# dirty, and F2FS would make a checkpoint each minute: on a busy host that is in the middle of a recording. 0 would call the
# flusher at once.
echo 360000 >/proc/sys/vm/dirty_writeback_centisecs
mount -t tracefs trace $TRACE
mount -t debugfs debug /sys/kernel/debug
for e in f2fs_get_victim f2fs_gc_begin f2fs_gc_end f2fs_write_checkpoint; do echo 1 >$TRACE/events/f2fs/$e/enable; done
# Kernels with kernel/patches have one more.
[ -e $TRACE/events/f2fs/f2fs_victim_frag ] && echo 1 >$TRACE/events/f2fs/f2fs_victim_frag/enable
echo boot >$TRACE/trace_clock
echo "@@kernel $(uname -r) $(uname -v)"
