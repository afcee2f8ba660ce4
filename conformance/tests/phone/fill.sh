# What a phone has, filled by a Linux with the key: an encrypted tree, one of its directories folding case, and a sealed
# file. Prints the sums of the contents.
tool() { perl -e '
    sub io { open my $f, "<", $_[0] or die "$_[0]: $!\n"; ioctl $f, $_[1], $_[2] or die sprintf "%x %s: %s\n", $_[1], $_[0], $! }
    my ($what, $path, $id) = @ARGV;
    if ($what eq "key") { my $k = pack "LLx32LLx32a64", 2, 0, 64, 0, join "", map { chr } 1 .. 64; io($path, 0xC0506617, $k); print unpack("H*", substr $k, 8, 16), "\n" }
    if ($what eq "policy") { io($path, 0x800C6613, pack "CCCCCx3H32", 2, 1, 4, 3, 0, $id) }
    if ($what eq "seal") { io($path, 0x40806685, pack "LLLLQLLQx88", 1, 1, 4096, 0, 0, 0, 0, 0) }
    if ($what eq "measure") { my $d = pack "SSx32", 0, 32; io($path, 0xC0046686, $d); print unpack("H*", substr $d, 4, 32), "\n" }
    if ($what eq "sync") { use IO::Handle; open my $f, "<", $path or die; $f->sync or die "sync: $!\n" }
' "$@"; }
key() { tool key .; }
sums() { find "$@" -type f | LC_ALL=C sort | while read -r f; do sha256sum "$f"; done; readlink enc/link; tool measure sealed; tool measure enc/sealed; }
fill() {
    ID=$(key)
    mkdir enc; tool policy enc $ID
    mkdir enc/dir enc/folded enc/many; chattr +F enc/folded
    echo secret >enc/file; echo inner >enc/dir/inner; ln -s target-of-the-link enc/link
    head -c 70000 /dev/urandom >enc/large; long=$(printf 'n%.0s' $(seq 200)); echo long >enc/many/$long
    for i in 1 2 3 4 5 6 7 8 9; do echo $i >enc/many/$i; echo $i >enc/folded/Größe-$i; done
    head -c 30000 /dev/urandom >sealed; tool seal sealed; head -c 10000 /dev/urandom >enc/sealed; tool seal enc/sealed
}
