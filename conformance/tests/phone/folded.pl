# Names that fold case.
sub folds { my ($d) = @_; say_of("$d folds", flags($d) & 0x40000000) }
mkdir "f" or die "f: $!";
say_of("+F", fold("f", 1)), folds("f");
say_of("create Straße", put("f/Straße", "one\n")), print get("f/STRASSE");
say_of("create STRASSE", put("f/STRASSE"));
say_of("open or create STRASSE", put("f/STRASSE", undef, O_WRONLY | O_CREAT)), print names("f"), "\n";
say_of("mkdir Dir", mkdir "f/Dir"), say_of("mkdir dIR", mkdir "f/dIR"), folds("f/dir");
say_of("-F", fold("f", 0));
say_of("link Zwei", link "f/straße", "f/Zwei"), say_of("link ZWEI", link "f/straße", "f/ZWEI");
say_of("symlink zwei", symlink "x", "f/zwei");
say_of("rename to another spelling", rename "f/Straße", "f/STRASSE"), print names("f"), "\n";
put("f/three", "three\n"), say_of("rename over", rename "f/three", "f/zWEI"), print names("f"), " ", get("f/zwei");
put("g", "g\n"), say_of("rename in and over", rename "g", "f/STRASSE"), print names("f"), " ", get("f/strasse");
say_of("unlink", unlink "f/STRAsse"), print names("f"), " ", get("f/Straße");
say_of("create strasse", put("f/strasse", "again\n")), print names("f"), " ", get("f/STRASSE");
say_of("rmdir", rmdir "f/DIR"), say_of("rename out", rename "f/zwei", "out"), print names("f"), "\n";
say_of("bytes B", put("f/B\xff")), say_of("bytes b", put("f/b\xff")), say_of("bytes B again", put("f/B\xff"));
say_of("ignorable", put("f/so\xc2\xadft")), say_of("without", put("f/SOFT"));
say_of("too long", put("f/" . "x" x 256));
for my $i (1 .. 300) { put("f/Name-$i", "$i\n") or die "$i: $!" }
print get("f/NAME-77"), get("f/name-299"), get("f/nAME-301");
say_of("not yet", stat "f/later"), put("f/LATER", "x\n");
say_of("there", stat "f/later"), say_of("there in a third spelling", stat "f/Later");
unlink "f/LATER"; say_of("gone", stat "f/later");
unlink "f/NAME-$_" for 1 .. 250;
print scalar(split / /, names("f")), "\n";
say_of("rmdir of a full one", rmdir "f");
mkdir "p"; put("p/A"), put("p/a");
say_of("+F with two names in it", fold("p", 1)); unlink "p/A", "p/a"; say_of("+F empty", fold("p", 1)), say_of("-F empty", fold("p", 0));
put("file"), say_of("+F of a file", fold("file", 1));
