//! Text with natural word frequencies, from a seed: few words often, many seldom.

use device::Rng;

const WORDS: &str = "the a to and of in it is you that he was for on are with as his they be at one have this from or \
    had by hot but some what there we can out other were all your when up use word how said an each she which do their \
    time if will way about many then them would write like so these her long make thing see him two has look more day \
    could go come did my sound no most number who over know water than call first people may down side been now find any \
    new work part take get place made live where after back little only round man year came show every good me give our \
    under name very through just form much great think say help low line before turn cause same mean differ move right \
    boy old too does tell sentence set three want air well also play small end put home read hand port large spell add \
    even land here must big high such follow act why ask men change went light kind off need house picture try us again \
    animal point mother world near build self earth father head stand own page should country found answer school grow \
    study still learn plant cover food sun four thought let keep eye never last door between city tree cross since hard \
    start might story saw far sea draw left late run while press close night real life few stop open seem together next";

/// Generates text.
pub struct Writer {
    words: Vec<&'static str>,
}

impl Default for Writer {
    fn default() -> Self {
        Writer { words: WORDS.split_whitespace().collect() }
    }
}

impl Writer {
    /// A word: the first in the list is as frequent as the next two together, and so on.
    pub fn word(&self, rng: &mut Rng) -> &'static str {
        let most = self.words.len() as f64;
        self.words[(most.powf(rng.unit()) - 1.0) as usize]
    }

    /// This many words.
    pub fn words(&self, rng: &mut Rng, count: u64) -> String {
        let mut text = String::new();
        for n in 0..count {
            if n > 0 {
                text.push(' ');
            }
            text.push_str(self.word(rng));
        }
        text
    }

    /// A message: mostly short, sometimes long.
    pub fn message(&self, rng: &mut Rng) -> String {
        let count = 2 + rng.below(12) + if rng.chance(1, 8) { rng.below(60) } else { 0 };
        self.words(rng, count)
    }

    /// Random letters and digits.
    pub fn key(&self, rng: &mut Rng, length: usize) -> String {
        const OF: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        (0..length).map(|_| char::from(OF[rng.index(OF.len())])).collect()
    }

    /// A record like a service's response: names and values, about `bytes` long.
    pub fn json(&self, rng: &mut Rng, bytes: usize) -> String {
        let mut text = format!("{{\"id\":{},\"created_at\":{}", rng.below(1 << 40), 1_700_000_000 + rng.below(1 << 24));
        while text.len() < bytes {
            let (name, value) = (self.word(rng), rng.below(100_000));
            match rng.below(3) {
                0 => text += &format!(",\"{name}_count\":{value}"),
                1 => text += &format!(",\"{name}_url\":\"https://cdn.example/{}\"", self.key(rng, 16)),
                _ => text += &format!(",\"{name}\":\"{}\"", self.words(rng, 6)),
            }
        }
        text + "}"
    }
}
