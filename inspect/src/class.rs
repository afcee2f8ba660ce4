//! Which class of file does a name suggest, and which application owns a path?
//!
//! Databases and executables are classified as in Ji HotStorage'16, section 4, plus names that are common today.
//! Applications are recognised by Android's directories.

/// A class of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Databases, with their journals.
    Database,
    /// Programs, libraries, packages.
    Executable,
    /// Pictures, sound, films.
    Media,
    /// Everything else.
    Other,
}

impl Class {
    /// All classes, in order.
    pub const ALL: [Class; 4] = [Class::Database, Class::Executable, Class::Media, Class::Other];

    /// Text for people.
    pub fn text(self) -> &'static str {
        match self {
            Class::Database => "databases",
            Class::Executable => "executables",
            Class::Media => "media",
            Class::Other => "others",
        }
    }

    /// The class of a file name. Case does not matter.
    pub fn from_name(name: &[u8]) -> Class {
        let name = name.to_ascii_lowercase();
        let ends = |all: &[&str]| all.iter().any(|end| name.ends_with(end.as_bytes()));
        if ends(DATABASES) {
            Class::Database
        } else if ends(EXECUTABLES) {
            Class::Executable
        } else if ends(MEDIA) {
            Class::Media
        } else {
            Class::Other
        }
    }
}

const DATABASES: &[&str] = &[
    ".db",
    "_db",
    ".db3",
    ".sqlite",
    ".sqlite3",
    ".sqlitedb",
    ".realm",
    ".mdb",
    ".wal",
    "-journal",
    "-wal",
    "-shm",
    ".ldb",
];
const EXECUTABLES: &[&str] =
    &[".apk", ".apex", ".dex", ".odex", ".vdex", ".oat", ".art", ".so", ".jar", ".exe", ".dll", ".dylib", ".ko"];
const MEDIA: &[&str] = &[
    ".jpg", ".jpeg", ".png", ".gif", ".webp", ".heic", ".avif", ".bmp", ".dng", ".mp4", ".m4v", ".mkv", ".webm",
    ".3gp", ".avi", ".mov", ".mp3", ".m4a", ".aac", ".ogg", ".opus", ".flac", ".wav", ".amr",
];

/// The application that owns a path, if the path lies where Android puts application files. It works for the volume
/// that a phone mounts at `/data`, and for a system that contains `/data`.
pub fn application(path: &str) -> Option<&str> {
    let mut parts = path.trim_start_matches('/').split('/').peekable();
    let mut first = parts.next()?;
    if first == "data" && matches!(parts.peek(), Some(&("data" | "user" | "user_de" | "app" | "media"))) {
        first = parts.next()?;
    }
    let name = match first {
        "data" => parts.next()?,
        "user" | "user_de" => parts.nth(1)?,
        "app" => {
            let name = parts.next()?;
            // /app/~~random==/package-random==/base.apk
            let name = if name.starts_with("~~") { parts.next()? } else { name };
            name.split_once('-').map_or(name, |(package, _)| package)
        }
        "media" if parts.nth(1)? == "Android" && matches!(parts.next(), Some("data" | "obb" | "media")) => {
            parts.next()?
        }
        _ => return None,
    };
    // A package name has a dot, and its directory is not empty.
    (name.contains('.') && parts.next().is_some()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_names() {
        use Class::*;
        let names = [
            ("newsfeed_db-journal", Database),
            ("mirth_cache.DB", Database),
            ("base.odex", Executable),
            ("libx.so", Executable),
            ("IMG_1.JPG", Media),
            ("so", Other),
            ("", Other),
        ];
        for (name, class) in names {
            assert_eq!(Class::from_name(name.as_bytes()), class, "{name}");
        }
    }

    #[test]
    fn applications_are_where_android_puts_them() {
        for path in [
            "/data/com.facebook.katana/databases/newsfeed_db",
            "/user/0/com.facebook.katana/x",
            "/user_de/10/com.facebook.katana/x",
            "/app/~~ab==/com.facebook.katana-cd==/base.apk",
            "/app/com.facebook.katana-1/base.apk",
            "/media/0/Android/data/com.facebook.katana/f",
            "/data/data/com.facebook.katana/f",
        ] {
            assert_eq!(application(path), Some("com.facebook.katana"), "{path}");
        }
        for path in ["/data/com.facebook.katana", "/home/a.b/c", "/media/0/DCIM/a.b/c", "/data/local/x", "", "/"] {
            assert_eq!(application(path), None, "{path}");
        }
    }
}
