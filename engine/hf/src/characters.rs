//! What becomes of each character in the pipelines that cut.rs takes for local, read from the
//! tables that the tokenizers crate itself uses.
//!
//! What a normalizer may make of a character on its own are its *images*: its decompositions, its
//! lower case, or nothing at all. Normalizers follow each other, so a property that shall last is
//! required of the images too, and of their images. Only composition looks at neighbours, and what
//! it makes has no other characters in its decomposition than those it was made of. So a property
//! is taken from a character that would compose with others that have it into one that has not.
//! Decomposition also sorts marks, but moves none across a character that is not one.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use unicode_categories::UnicodeCategories;
use unicode_normalization_alignments::char::{
    canonical_combining_class, decompose_canonical, decompose_compatible, is_combining_mark,
};

/// How a pre-tokenizer finds words.
#[derive(Clone, Copy, PartialEq)]
pub enum Words {
    Spaced,    // WhitespaceSplit: whitespace is between them
    Bert,      // BertPreTokenizer: besides, each punctuation character is one
    OfLetters, // Whitespace: \w+ and [^\w\s]+
}

/// What the normalizer and the pre-tokenizer may do.
#[derive(Clone, Copy)]
pub struct Rules {
    pub words: Words,
    pub chinese: bool,    // surround each Chinese character with spaces
    pub compatible: bool, // decompose as NFKC and NFKD do
    pub composes: bool,   // compose as NFC and NFKC do
}

const RULES: usize = 3 * 8;

/// Characters by what is known of them.
pub struct Characters {
    rules: Rules,
    classes: Vec<u8>,                         // by code point, below END
    others: Vec<OnceLock<Box<[u8; OTHERS]>>>, // of OTHERS code points each, from END on
}

/// Nothing that it becomes ends a word or is ASCII punctuation, whatever is around it. It may
/// vanish, and it may combine with others of which the same is true.
const INNER: u8 = 1;
/// Besides, it leaves at least one character, the first of which combines with nothing before it.
const LETTER: u8 = 2;
/// It combines with nothing, and whatever precedes it, the first that it becomes is whitespace or
/// begins a word, and is no other character that is ASCII punctuation.
const START: u8 = 4;

/// No character from here on has images, or composes. They are rare, and therefore looked up when
/// one is met.
const END: usize = 0x34000;
const OTHERS: usize = 256;

impl Rules {
    fn index(self) -> usize {
        let flags = [self.chinese, self.compatible, self.composes];
        let bits = |bits, flag| 2 * bits + usize::from(flag);
        flags.into_iter().fold(self.words as usize, bits)
    }

    /// Whether a character that is not whitespace is a word of its own.
    fn is_word(self, c: char) -> bool {
        self.words == Words::Bert && (c.is_ascii_punctuation() || c.is_punctuation())
            || self.chinese && is_chinese(c)
    }
}

/// As in BertNormalizer.
fn is_chinese(c: char) -> bool {
    matches!(
        c as u32,
        0x4E00..=0x9FFF
            | 0x3400..=0x4DBF
            | 0x20000..=0x2A6DF
            | 0x2A700..=0x2B73F
            | 0x2B740..=0x2B81F
            | 0x2B920..=0x2CEAF
            | 0xF900..=0xFAFF
            | 0x2F800..=0x2FA1F
    )
}

/// Removed by a normalizer: by BertNormalizer where it cleans or strips accents, by StripAccents.
fn may_vanish(c: char) -> bool {
    let cleaned = matches!(c, '\0' | '\u{FFFD}') || c.is_other();
    cleaned && !matches!(c, '\t' | '\n' | '\r') || c.is_mark_nonspacing() || is_combining_mark(c)
}

/// The images of all characters. One without an entry is its only image.
#[derive(Default)]
struct Images {
    of: HashMap<char, Vec<Vec<char>>>,
    composed: Vec<(char, Vec<char>)>, // and what each is composed of
    firsts: HashSet<char>,            // of what characters are composed of
    later: HashSet<char>,
}

impl Images {
    fn read(rules: Rules) -> Images {
        let mut images = Images::default();
        for c in (0..END as u32).filter_map(char::from_u32) {
            let mut canonical = Vec::new();
            decompose_canonical(c, |part| canonical.push(part));
            if rules.composes && canonical.len() > 1 {
                images.firsts.insert(canonical[0]);
                images.later.extend(&canonical[1..]);
                images.composed.push((c, canonical.clone()));
            }
            let mut of = vec![canonical, c.to_lowercase().collect()];
            if rules.compatible {
                let mut compatible = Vec::new();
                decompose_compatible(c, |part| compatible.push(part));
                of.push(compatible);
            }
            of.retain(|image| *image != [c]);
            if !of.is_empty() {
                images.of.insert(c, of);
            }
        }
        images
    }
}

impl Characters {
    /// Shared by all tokenizers with the same rules. Takes some milliseconds the first time.
    pub fn of(rules: Rules) -> &'static Characters {
        static OF: [OnceLock<Characters>; RULES] = [const { OnceLock::new() }; RULES];
        OF[rules.index()].get_or_init(|| Characters::read(rules))
    }

    fn read(rules: Rules) -> Characters {
        let images = Images::read(rules);
        let mut characters = Characters {
            rules,
            classes: vec![0; END],
            others: Vec::new(),
        };
        let others = (char::MAX as usize + 1 - END) / OTHERS;
        characters.others.resize_with(others, OnceLock::new);
        for c in (0..END as u32).filter_map(char::from_u32) {
            let mut class = characters.alone(c);
            if images.firsts.contains(&c) {
                class &= !START;
            }
            if images.later.contains(&c) {
                class &= INNER;
            }
            characters.classes[c as usize] = class;
        }
        while characters.drop_inner(&images) {}
        for class in &mut characters.classes {
            if *class & INNER == 0 {
                *class &= !LETTER;
            }
        }
        while characters.drop_letters(&images) {}
        while characters.drop_starts(&images) {}
        characters
    }

    /// What is true of `c` if it has no image and composes with nothing.
    fn alone(&self, c: char) -> u8 {
        let separates = c.is_whitespace() || self.rules.is_word(c);
        // ASCII punctuation is here for the added tokens, see long_word.rs.
        let inner = !separates
            && !c.is_ascii_punctuation()
            && (self.rules.words != Words::OfLetters || regex_syntax::is_word_character(c));
        if !separates && !inner {
            return 0;
        }
        let stays = canonical_combining_class(c) == 0 && !may_vanish(c);
        match (inner, stays) {
            (true, true) => INNER | LETTER,
            (true, false) => INNER,
            (false, true) => START,
            (false, false) => 0,
        }
    }

    /// These return whether anything was taken from a character.
    fn drop_inner(&mut self, images: &Images) -> bool {
        let mut dropped = false;
        for (&c, of) in &images.of {
            if self.has(c, INNER) && of.iter().flatten().any(|&d| !self.has(d, INNER)) {
                dropped |= self.drop(c, INNER);
            }
        }
        for (c, parts) in &images.composed {
            if !self.has(*c, INNER) && parts.iter().all(|&part| self.has(part, INNER)) {
                dropped |= self.drop(parts[0], INNER);
            }
        }
        dropped
    }

    fn drop_letters(&mut self, images: &Images) -> bool {
        let mut dropped = false;
        for (&c, of) in &images.of {
            if self.has(c, LETTER) && of.iter().any(|image| !self.has(image[0], LETTER)) {
                dropped |= self.drop(c, LETTER);
            }
        }
        for (c, parts) in &images.composed {
            if self.has(*c, INNER) && !self.has(*c, LETTER) {
                dropped |= self.drop(parts[0], LETTER);
            }
        }
        dropped
    }

    fn drop_starts(&mut self, images: &Images) -> bool {
        let mut dropped = false;
        for (&c, of) in &images.of {
            let lasts = |d: char| self.has(d, START) && !d.is_ascii_punctuation();
            if self.has(c, START) && of.iter().any(|image| !lasts(image[0])) {
                dropped |= self.drop(c, START);
            }
        }
        dropped
    }

    fn has(&self, c: char, class: u8) -> bool {
        self.class(c) & class != 0
    }

    fn drop(&mut self, c: char, class: u8) -> bool {
        let had = self.has(c, class);
        self.classes[c as usize] &= !class;
        had
    }

    fn class(&self, c: char) -> u8 {
        let code = c as usize;
        if let Some(&class) = self.classes.get(code) {
            return class;
        }
        let first = code - code % OTHERS;
        let classes = self.others[(first - END) / OTHERS].get_or_init(|| {
            Box::new(std::array::from_fn(|i| {
                char::from_u32((first + i) as u32).map_or(0, |other| self.alone(other))
            }))
        });
        classes[code - first]
    }

    pub fn is_inner(&self, c: char) -> bool {
        self.has(c, INNER)
    }

    pub fn is_letter(&self, c: char) -> bool {
        self.has(c, LETTER)
    }

    pub fn is_start(&self, c: char) -> bool {
        self.has(c, START)
    }
}
