//! Files summed up by class, application or directory.

use std::collections::BTreeMap;

use inspect::class::{self, Class};
use inspect::inode::Kind;
use inspect::verdict::Sum;

use super::{By, Seen};

/// Named sums: classes in their order, otherwise by excess extents, the most first.
pub fn of(seen: &Seen<'_>, by: By) -> Vec<(String, Sum)> {
    if by == By::Class {
        let classes = Class::ALL.iter().zip(&seen.verdict.classes);
        return classes.map(|(class, sum)| (class.text().to_owned(), *sum)).collect();
    }
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    let files = seen.files().iter().zip(&seen.verdict.priced).enumerate();
    for (i, (file, priced)) in files.filter(|(_, (f, _))| f.kind == Kind::File) {
        let text = seen.path_inside(i);
        let name = match by {
            By::App => class::application(&text).unwrap_or("(no application)").to_owned(),
            _ => directory(&text),
        };
        sums.entry(name).or_default().take(file, priced);
    }
    let mut all: Vec<_> = sums.into_iter().collect();
    all.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.excess(), sum.bytes)));
    all
}

/// The first two directories of a path.
fn directory(path: &str) -> String {
    let mut ends = path.match_indices('/').map(|(at, _)| at).skip(1);
    let (one, two) = (ends.next(), ends.next());
    match two.or(one) {
        Some(end) => path[..end].to_owned(),
        None => "/".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::directory;

    #[test]
    fn two_directories_at_most() {
        let cases = [("/f", "/"), ("/a/f", "/a"), ("/a/b/f", "/a/b"), ("/a/b/c/f", "/a/b"), ("/", "/")];
        for (path, dir) in cases {
            assert_eq!(directory(path), dir, "{path}");
        }
    }
}
