//! Which known word was probably meant by an unknown one?
//!
//! Words are compared as clap compares subcommands and options, by Jaro similarity.

/// Similarity from which a word is suggested; clap's own threshold.
const LIKE: f64 = 0.7;

/// The known word most similar to the typed one, if any is similar enough.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let like = known.into_iter().map(|k| (strsim::jaro(word, k), k)).filter(|(like, _)| *like > LIKE);
    like.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, k)| k)
}

/// The end of a sentence that suggests it; empty if there is none.
pub fn tip<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(word, known).map_or(String::new(), |k| format!("; did you mean {k}?"))
}

/// Like [`tip`], for known words in a comma-separated text.
pub fn tip_of_list(word: &str, known: &str) -> String {
    tip(word, known.split(',').map(str::trim))
}

/// Like [`tip`], for a parser message ``unknown field `x`, expected one of `a`, `b` ``; empty for any other message.
pub fn tip_of_field(said: &str) -> String {
    let Some((_, fields)) = said.split_once("unknown field `") else { return String::new() };
    let mut quoted = fields.split('`').step_by(2);
    let word = quoted.next().unwrap_or_default();
    tip(word, quoted.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_most_like_it_is_meant_and_none_if_none_is() {
        let known = ["noatime", "noexec", "node_cache"];
        assert_eq!(closest("notime", known), Some("noatime"));
        assert_eq!(closest("node-cache", known), Some("node_cache"));
        assert_eq!(closest("warp", known), None);
        assert_eq!(tip_of_list("microdrve", "kirin9000-ufs31, microdrive"), "; did you mean microdrive?");
        let said = "parameters: unknown field `row`, expected one of `files`, `rows`, `seed` in `params`";
        assert_eq!(tip_of_field(said), "; did you mean rows?");
        assert_eq!(tip_of_field("unknown field `row`, there are no fields"), "");
        assert_eq!(tip_of_field("invalid type"), "");
    }
}
