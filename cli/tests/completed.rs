//! What shells complete after `-o`: bash and zsh on a terminal by key presses, fish by its own list.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::room::Room;
use crate::typed::done;

/// A shell on a terminal, in which `joulefs` prints its arguments.
fn typed(room: &Room, shell: &str, begin: &str, keys: &str) -> Vec<String> {
    let rc = room.path("begin");
    std::fs::write(&rc, begin).unwrap();
    let mut script = Command::new("script")
        .args(["-q", "-e", "-c", shell, "/dev/null"])
        .env("TERM", "dumb")
        .env("BEGIN", &rc)
        .env("ZDOTDIR", room.path("."))
        .env("HOME", room.path("."))
        .current_dir(room.path("."))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("script, of bsdutils");
    let (mut to, mut from) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let mut seen = Vec::new();
    let mut until = |wanted: &str, seen: &mut Vec<u8>| {
        let mut byte = [0];
        while !String::from_utf8_lossy(seen).contains(wanted) {
            assert_eq!(from.read(&mut byte).unwrap(), 1, "{shell} ended: {}", String::from_utf8_lossy(seen));
            seen.push(byte[0]);
        }
    };
    // Keys pressed before the prompt are lost.
    until("ready> ", &mut seen);
    to.write_all(keys.as_bytes()).unwrap();
    to.flush().unwrap();
    until("<end>", &mut seen);
    to.write_all(b"exit\n").unwrap();
    drop(to);
    let mut rest = Vec::new();
    from.read_to_end(&mut rest).unwrap();
    script.wait().unwrap();
    let text = String::from_utf8_lossy(&seen).into_owned();
    let (_, given) = text.split_once("<begin>").unwrap_or_else(|| panic!("{shell} ran nothing: {text}"));
    given.split("<end>").next().unwrap().split('|').map(str::to_owned).collect()
}

/// Key presses with tabs, and the program's resulting arguments.
const TYPED: [(&str, &[&str]); 9] = [
    ("mount -o noat\t", &["mount", "-o", "noatime"]),
    ("mount -o gc=jou\t", &["mount", "-o", "gc=joule"]),
    ("mount -o noatime,gc=fa\t", &["mount", "-o", "noatime,gc=fagc"]),
    ("mount -o noatime,gc=fagc,background_g\toff", &["mount", "-o", "noatime,gc=fagc,background_gc=off"]),
    ("mount -o compress_algorithm=lzo-\t", &["mount", "-o", "compress_algorithm=lzo-rle"]),
    ("mount -p microdrive -o delta_reads=jo\t", &["mount", "-p", "microdrive", "-o", "delta_reads=joules"]),
    ("cp a v.img:/ -o compress_log_size=8\t", &["cp", "a", "v.img:/", "-o", "compress_log_size=8"]),
    ("trace replay a.rec -o background_gc=of\t", &["trace", "replay", "a.rec", "-o", "background_gc=off"]),
    ("mount -o ro,stats=what-was-\t", &["mount", "-o", "ro,stats=what-was-written.json"]),
];

fn made() -> Room {
    let room = Room::new();
    done(&["generate", &room.text("made")]);
    std::fs::write(room.path("what-was-written.json"), "").unwrap();
    room
}

fn there(shell: &str) -> bool {
    let there = Command::new(shell).args(["-c", "exit"]).status().is_ok();
    assert!(there || shell != "bash", "no bash");
    if !there {
        testlog::missing(format_args!("{shell}: scripts/install-tools suites"));
    }
    there
}

#[test]
fn bash_completes_names_and_values_of_mount_options_when_the_key_is_pressed() {
    if !there("bash") {
        return;
    }
    let room = made();
    let begin =
        "PS1='ready> '\nsource made/completions/bash/joulefs\njoulefs() { local IFS='|'; echo \"<begin>$*<end>\"; }\n";
    for (keys, given) in TYPED {
        let said = typed(&room, "bash --noprofile --rcfile \"$BEGIN\" -i", begin, &format!("joulefs {keys}\n"));
        assert_eq!(said, given, "{keys:?}");
    }
    // With word breaks without the equals sign, and with -o and its list as one word.
    let letters = format!("COMP_WORDBREAKS=$' \\t\\n'\n{begin}");
    for (keys, given) in
        [("-o ro,gc=jou\t", &["mount", "-o", "ro,gc=joule"][..]), ("-oro,noat\t", &["mount", "-oro,noatime"])]
    {
        for begin in [begin, &letters] {
            let said =
                typed(&room, "bash --noprofile --rcfile \"$BEGIN\" -i", begin, &format!("joulefs mount {keys}\n"));
            assert_eq!(said, given, "{keys:?}");
        }
    }
    // Words after lab are completed by joulefs-lab's own completion.
    let other =
        "_joulefs__lab() { [[ ${COMP_WORDS[0]}:$COMP_CWORD:$2 == joulefs-lab:2:fagc ]] && COMPREPLY=(fagc-fig4); }\n";
    let said = typed(
        &room,
        "bash --noprofile --rcfile \"$BEGIN\" -i",
        &format!("{other}{begin}"),
        "joulefs lab show fagc\t\n",
    );
    assert_eq!(said, ["lab", "show", "fagc-fig4"]);
    // Everything else is completed as before.
    let said = typed(&room, "bash --noprofile --rcfile \"$BEGIN\" -i", begin, "joulefs mount --record-d\tx\n");
    assert_eq!(said, ["mount", "--record-device", "x"]);
}

#[test]
fn zsh_completes_names_and_values_of_mount_options_when_the_key_is_pressed() {
    if !there("zsh") {
        return;
    }
    let room = made();
    let begin = "fpath=($PWD/made/completions/zsh $fpath)\nautoload -U compinit && compinit -u -D\n\
        joulefs() { local IFS='|'; print -r -- \"<begin>$*<end>\"; }\nPS1='ready> '\nunsetopt PROMPT_CR\n";
    let other = "_joulefs-lab() { [[ $words[1]:$CURRENT == joulefs-lab:3 ]] && compadd fagc-fig4 }\n";
    std::fs::write(room.path(".zshrc"), format!("{begin}{other}")).unwrap();
    for (keys, given) in TYPED.into_iter().chain([("lab show fagc\t", &["lab", "show", "fagc-fig4"][..])]) {
        let said = typed(&room, "zsh -d -i", "", &format!("joulefs {keys}\n"));
        // A comma that zsh appends to a value starts another item of the list, as usual.
        let said: Vec<&str> = said.iter().map(|word| word.trim_end_matches(',')).collect();
        assert_eq!(said, given, "{keys:?}");
    }
}

#[test]
fn fish_says_the_names_and_values_of_mount_options() {
    if !there("fish") {
        return;
    }
    let room = made();
    let says = |line: &str| {
        let script = room.text("made/completions/fish/joulefs.fish");
        let other = "complete -c joulefs-lab -f -n '__fish_seen_subcommand_from show' -a fagc-fig4";
        let ask = format!("source {script}; {other}; complete -C {line:?}");
        let out = Command::new("fish").args(["--no-config", "-c", &ask]).env("HOME", room.path(".")).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        text.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(says("joulefs mount -o noat"), ["noatime"]);
    assert_eq!(says("joulefs mount -o noatime,gc=jo"), ["noatime,gc=joule"]);
    assert_eq!(says("joulefs cp a b -o compress_log_size=").len(), 7);
    assert_eq!(says("joulefs trace replay a.rec -o background_gc="), ["background_gc=off", "background_gc=on"]);
    assert_eq!(says("joulefs lab show fagc"), ["fagc-fig4"]);
    // fish also lists names that contain the letters anywhere.
    assert!(!says("joulefs trace replay a.rec -o noat").contains(&"noatime".to_owned()), "a mount's alone");
    assert!(says("joulefs mount --record-d").contains(&"--record-device".to_owned()));
}
