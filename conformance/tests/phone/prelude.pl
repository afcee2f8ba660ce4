# What both scripts of this directory use. They run on Linux's own mount and on ours, print what each call answers, and
# both must print the same.
use strict;
use warnings;
use Errno;
use Fcntl;
use IO::Handle;
use POSIX ();
$| = 1;
chdir $ARGV[0] or die "$ARGV[0]: $!\n";
my %name = map { my $n = Errno->can($_); $n ? ($n->() => $_) : () } grep { /^E[A-Z]/ && $_ ne "EWOULDBLOCK" && $_ ne "ENOTSUP" } keys %!;
sub errno { my $e = $! + 0; $name{$e} // $e }
sub say_of { my ($what, $ok) = @_; my $e = errno(); print "$what: ", ($ok ? "ok" : $e), "\n" }
sub names { my ($d) = @_; opendir(my $h, $d) or return "cannot: " . errno(); join " ", sort grep { !/^\.\.?$/ } readdir $h }
# Makes a file, or opens it as asked.
sub put {
    my ($file, $text, $how) = @_;
    sysopen(my $h, $file, $how // (O_WRONLY | O_CREAT | O_EXCL), 0644) or return 0;
    !defined $text or (print $h $text and close $h);
}
# Writes to a file that is there; a mount with a cache above may tell of a refusal when it writes back.
sub change { my ($file) = @_; sysopen(my $h, $file, O_RDWR) or return 0; defined(syswrite $h, "changed") and $h->sync }
sub get { my ($f) = @_; open(my $h, "<", $f) or return errno() . "\n"; local $/; <$h> }
sub flags { my ($f) = @_; open(my $h, "<", $f) or return 0; my $b = pack "q", 0; ioctl($h, 0x80086601, $b) or return 0; unpack "L", $b }
# chattr +F and -F.
sub fold {
    my ($f, $on) = @_;
    my $flags = flags($f) & 0x2000fff7 & ~0x1800;
    open(my $h, "<", $f) or return 0;
    my $b = pack "q", $flags | ($on ? 0x40000000 : 0);
    ioctl($h, 0x40086602, $b);
}
