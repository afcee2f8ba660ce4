//! How do shells complete the names and values after `-o`, and the arguments of `lab`?
//!
//! clap knows that `-o` takes a list, but not its items; [`options`] lists them. A shell completes the last item of the
//! list: a name or, after `name=`, a value, a file, a user or a group. Each shell has its own syntax for that. All
//! additions to clap's scripts are generated from one table, so a new option in the table is completed in every shell.

use clap_complete::Shell;

use crate::commands::mount::options::{self, Choice};

/// The syntax after `name=`.
enum Value {
    /// No value and no equals sign.
    None,
    /// One of these words.
    Words(Vec<String>),
    /// A number, size or time.
    Any,
    File,
    User,
    Group,
}

impl Value {
    fn of((name, values, _): &Choice) -> Self {
        match (*name, *values) {
            (_, "") => Value::None,
            ("uid", _) => Value::User,
            ("gid", _) => Value::Group,
            (_, "FILE") => Value::File,
            (_, values) => match options::words(values) {
                words if words.is_empty() => Value::Any,
                words => Value::Words(words),
            },
        }
    }
}

/// Additions to a shell's script.
pub fn added(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!("{script}\n{}", bash()),
        Shell::Zsh => zsh(script),
        Shell::Fish => fish(script),
        _ => script.to_owned(),
    }
}

/// Quotes for a shell with single quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Readline splits `gc=jo` into two words unless configured otherwise: the inserted text is cut according to readline's
/// current word. `-o` and the list may be one word.
const BASH: &str = r#"
# The word behind -o, if that is where the cursor stands: its last item is completed.
_joulefs_option() {
    local line="${COMP_LINE:0:COMP_POINT}" word last stuck="" known="" at
    word="${line##*[[:space:]]}"
    last="${line%"$word"}"
    last="${last%"${last##*[![:space:]]}"}"
    last="${last##*[[:space:]]}"
    if [[ $word == -o?* ]]; then
        stuck="-o" word="${word#-o}"
    elif [[ $last != -o ]]; then
        return 1
    fi
    for at in "${COMP_WORDS[@]:1}"; do
        case "$at" in
            mount) known="$_joulefs_mount_options"; break ;;
            cp | replay) known="$_joulefs_volume_options"; break ;;
            trace | -*) ;;
            *) return 1 ;;
        esac
    done
    [[ -n $known ]] || return 1
    local item="${word##*,}" head found=() each name values
    head="$stuck${word%"$item"}"
    if [[ $item == *=* ]]; then
        while IFS=' ' read -r name values; do
            [[ $name == "${item%%=*}=" ]] || continue
            case "$values" in
                FILE) mapfile -t found < <(compgen -f -- "${item#*=}"); compopt -o filenames 2>/dev/null ;;
                USER) mapfile -t found < <(compgen -u -- "${item#*=}") ;;
                GROUP) mapfile -t found < <(compgen -g -- "${item#*=}") ;;
                *) mapfile -t found < <(compgen -W "$values" -- "${item#*=}") ;;
            esac
            found=("${found[@]/#/$name}")
            break
        done <<<"$known"
    else
        while IFS=' ' read -r name values; do
            [[ $name == "$item"* ]] && found+=("$name")
        done <<<"$known"
        [[ ${#found[@]} -ne 1 || ${found[0]} != *= ]] || compopt -o nospace 2>/dev/null
    fi
    compopt +o default +o bashdefault 2>/dev/null
    # What readline takes for words that stand before this one stays.
    local before="$stuck$word"
    before="${before%"$2"}"
    COMPREPLY=()
    for each in "${found[@]}"; do
        each="$head$each"
        COMPREPLY+=("${each#"$before"}")
    done
    return 0
}

# What stands behind `lab` is for joulefs-lab.
_joulefs_lab() {
    [[ ${COMP_WORDS[1]} == lab && $COMP_CWORD -gt 1 ]] || return 1
    declare -F _joulefs__lab >/dev/null || _completion_loader joulefs-lab 2>/dev/null
    declare -F _joulefs__lab >/dev/null || return 1
    local COMP_WORDS=(joulefs-lab "${COMP_WORDS[@]:2}") COMP_CWORD=$((COMP_CWORD - 1))
    _joulefs__lab joulefs-lab "$2" "$3"
}

_joulefs_or_option() {
    _joulefs_option "$@" || _joulefs_lab "$@" || _joulefs "$@"
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _joulefs_or_option -o nosort -o bashdefault -o default joulefs
fi
"#;

fn bash() -> String {
    let line = |choice: &Choice| match Value::of(choice) {
        Value::None => choice.0.to_owned(),
        Value::Words(words) => format!("{}= {}", choice.0, words.join(" ")),
        Value::Any => format!("{}=", choice.0),
        Value::File => format!("{}= FILE", choice.0),
        Value::User => format!("{}= USER", choice.0),
        Value::Group => format!("{}= GROUP", choice.0),
    };
    let list = |choices: Vec<&Choice>| choices.into_iter().map(line).collect::<Vec<_>>().join("\n");
    format!(
        "_joulefs_mount_options={}\n_joulefs_volume_options={}\n{BASH}",
        quoted(&list(options::of_mounts())),
        quoted(&list(options::of_volumes()))
    )
}

/// `words` holds the words after `lab`.
const ZSH_LAB: &str = "_joulefs_lab() {
    words=(joulefs-lab \"${words[@]}\")
    (( CURRENT++ ))
    _joulefs-lab
}

";

fn zsh(script: &str) -> String {
    // In `_values`, a colon starts an action, and a bracket ends a description.
    let meaning = |text: &str| text.replace('\\', "\\\\").replace(':', "\\:").replace('[', "(").replace(']', ")");
    let spec = |choice: &&Choice| {
        let (name, _, text) = choice;
        let action = match Value::of(choice) {
            Value::None => String::new(),
            Value::Words(words) => format!(":value:({})", words.join(" ")),
            Value::Any => ":value: ".to_owned(),
            Value::File => ":file:_files".to_owned(),
            Value::User => ":user:_users".to_owned(),
            Value::Group => ":group:_groups".to_owned(),
        };
        // A list needs only the first sentence.
        let short = text.split(';').next().unwrap_or(text);
        format!("        {} \\\n", quoted(&format!("{name}[{}]{action}", meaning(short))))
    };
    let function = |name: &str, choices: Vec<&Choice>| {
        let specs: String = choices.iter().map(spec).collect();
        format!("{name}() {{\n    _values -s , -S = 'option' \\\n{specs}        && return 0\n}}\n\n")
    };
    let functions = function("_joulefs_mount_options", options::of_mounts())
        + &function("_joulefs_volume_options", options::of_volumes())
        + ZSH_LAB;
    script
        .replace("listed below]:OPTIONS:_default'", "listed below]:OPTIONS:_joulefs_mount_options'")
        .replace("]:OPTIONS:_default'", "]:OPTIONS:_joulefs_volume_options'")
        .replace("Arguments for joulefs-lab:_default'", "Arguments for joulefs-lab:_joulefs_lab'")
        .replacen("\n_joulefs() {\n", &format!("\n{functions}_joulefs() {{\n"), 1)
}

/// fish shows the text after a tab as the description.
const FISH: &str = r#"# The last item of the list behind -o, with those before it.
function __joulefs_options
    set -l before (commandline -ct | string replace -r '^-o' '' | string match -r '^.*,')
    for each in $argv
        printf '%s%s\n' "$before" $each
    end
end

# What stands behind `lab` is for joulefs-lab.
function __joulefs_lab
    set -l words (commandline -opc)
    complete -C (string join ' ' -- joulefs-lab $words[3..] (commandline -ct))
end
complete -c joulefs -n '__fish_seen_subcommand_from lab' -f -a '(__joulefs_lab)'
"#;

fn fish(script: &str) -> String {
    let items = |choice: &&Choice| {
        let (name, _, text) = choice;
        let short = text.split(';').next().unwrap_or(text);
        let items = match Value::of(choice) {
            Value::None => vec![(*name).to_owned()],
            Value::Words(words) => words.iter().map(|word| format!("{name}={word}")).collect(),
            _ => vec![format!("{name}=")],
        };
        let item = |item: String| format!(" {}", quoted_for_fish(&format!("{item}\t{short}")));
        items.into_iter().map(item).collect::<String>()
    };
    let list = |choices: Vec<&Choice>| choices.iter().map(items).collect::<String>();
    // clap's own line marks the option as requiring a value.
    let with_list = |line: &str| match line.strip_suffix(" -r").filter(|line| line.contains(" -s o -d ")) {
        Some(own) => {
            let of = if line.contains("using_subcommand mount\"") { "mount" } else { "volume" };
            format!("{own} -r -f -a '(__joulefs_options $__joulefs_{of}_options)'\n")
        }
        None => format!("{line}\n"),
    };
    format!(
        "{FISH}\nset -g __joulefs_mount_options{}\nset -g __joulefs_volume_options{}\n\n{}",
        list(options::of_mounts()),
        list(options::of_volumes()),
        script.lines().map(with_list).collect::<String>()
    )
}

fn quoted_for_fish(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
