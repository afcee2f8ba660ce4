# Opens FILE for reading and writing ($ARGV[1] is "w") or for reading, and does what stdin says, a line each:
# start, commit, abort, features; write OFFSET COUNT BYTE; size; fdatasync. Answers with "0" or the number of the error.
use strict;
use warnings;
use IO::Handle;
$| = 1;
my ($file, $how) = @ARGV;
open(my $fd, $how eq "w" ? "+<" : "<", $file) or die "$file: $!";
binmode $fd;
my %ioctl = (start => 0xf501, commit => 0xf502, abort => 0xf505);
while (my $line = <STDIN>) {
    my ($what, @with) = split ' ', $line;
    if (exists $ioctl{$what}) {
        my $nothing = 0;
        print ioctl($fd, $ioctl{$what}, $nothing) ? 0 : $! + 0, "\n";
    } elsif ($what eq "features") {
        my $bits = pack("L", 0);
        print ioctl($fd, 0x8004f50c, $bits) ? unpack("L", $bits) : -$!, "\n";
    } elsif ($what eq "write") {
        sysseek($fd, $with[0], 0);
        print syswrite($fd, chr($with[2]) x $with[1]) == $with[1] ? 0 : $! + 0, "\n";
    } elsif ($what eq "size") {
        print -s $fd, "\n";
    } elsif ($what eq "fdatasync") {
        print $fd->sync() ? 0 : $! + 0, "\n";
    } else {
        die "what is $what?";
    }
}
