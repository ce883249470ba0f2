//! The contents of an expanded chunk.

use zerocopy::FromBytes as _;

use super::format::{EventHeader, SectionHeader, StringHeader, section_kind};
use super::limits::{MAX_STRING, STRING_BYTES};
use super::lookup::Tables;
use super::tables::Increment;
use super::wire;
use tracer_records::model::{ClockOffsets, Event, StringId};

/// The contents of a chunk, checked as a whole: nothing is delivered of a chunk that is damaged.
#[derive(Default)]
pub struct Contents<'a> {
    strings: Vec<(StringId, &'a str)>,
    increments: Vec<Increment>,
    /// Sections of events.
    events: Vec<&'a [u8]>,
    /// The number of events, including those of unknown kinds.
    pub event_count: u64,
    /// The size of strings and tables, with [`STRING_BYTES`] and [`Increment::kept_bytes`] beside their bytes: a trace
    /// that was made up can have millions of entries that say nothing.
    pub table_bytes: u64,
}

impl<'a> Contents<'a> {
    /// Reads an expanded chunk; the caller has checked its seal.
    ///
    /// # Errors
    ///
    /// The part that is missing.
    pub fn of(raw: &'a [u8]) -> Result<Self, String> {
        let (mut contents, mut rest) = (Self::default(), raw);
        while !rest.is_empty() {
            let (header, after) =
                SectionHeader::read_from_prefix(rest).map_err(|_| "a whole section header")?;
            let (body, after) =
                after.split_at_checked(header.bytes.get() as usize).ok_or("a whole section")?;
            rest = after;
            match header.kind.get() {
                section_kind::EVENTS => contents.events(body)?,
                section_kind::SEAL => {}
                kind => {
                    contents.table_bytes += body.len() as u64;
                    contents.table(kind, body)?;
                }
            }
        }
        Ok(contents)
    }

    fn table(&mut self, kind: u32, body: &'a [u8]) -> Result<(), String> {
        match kind {
            section_kind::STRINGS => self.strings(body)?,
            section_kind::TABLES => {
                let increment = serde_json::from_slice::<Increment>(body);
                let increment = increment.map_err(|e| format!("tables as JSON ({e})"))?;
                self.table_bytes += increment.kept_bytes() as u64;
                self.increments.push(increment);
            }
            _ => {}
        }
        Ok(())
    }

    fn strings(&mut self, mut rest: &'a [u8]) -> Result<(), &'static str> {
        while !rest.is_empty() {
            let (header, after) =
                StringHeader::read_from_prefix(rest).map_err(|_| "a whole string header")?;
            let (text, after) = after
                .split_at_checked(header.bytes.get() as usize)
                .filter(|(text, _)| text.len() <= MAX_STRING)
                .ok_or("a whole string")?;
            rest = after;
            let text = str::from_utf8(text).map_err(|_| "a string in UTF-8")?;
            if header.id.get() != 0 {
                self.table_bytes += STRING_BYTES as u64;
                self.strings.push((header.id.get(), text));
            }
        }
        Ok(())
    }

    fn events(&mut self, section: &'a [u8]) -> Result<(), &'static str> {
        for event in Events(section) {
            event?;
            self.event_count += 1;
        }
        self.events.push(section);
        Ok(())
    }

    /// Adds the strings and tables to `tables`, then hands over the events.
    pub fn deliver<E>(
        self,
        tables: &mut Tables,
        mut on_event: impl FnMut(&Event) -> Result<(), E>,
    ) -> Result<Delivered, E> {
        let Self { strings, increments, events, event_count: _, table_bytes: _ } = self;
        let mut delivered = Delivered::default();
        tables.strings.extend(strings.into_iter().map(|(id, text)| (id, text.to_owned())));
        for increment in increments {
            delivered.end_clock = increment.merge_into(tables).or(delivered.end_clock);
        }
        // `of` has checked that the events can be read.
        for event in events.into_iter().flat_map(Events).flatten().flatten() {
            delivered.events += 1;
            on_event(&event)?;
        }
        Ok(delivered)
    }
}

/// The result of delivering a chunk.
#[derive(Default)]
pub struct Delivered {
    /// Events of known kinds.
    pub events: u64,
    /// The clocks when recording ended, if the chunk has them.
    pub end_clock: Option<ClockOffsets>,
}

/// The events of a section; none in the place of events of unknown kinds. Ends after an error.
struct Events<'a>(&'a [u8]);

impl Iterator for Events<'_> {
    type Item = Result<Option<Event>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.0);
        (!rest.is_empty()).then(|| {
            let (header, after) =
                EventHeader::read_from_prefix(rest).map_err(|_| "a whole event header")?;
            let (record, after) =
                after.split_at_checked(header.bytes.get().into()).ok_or("a whole event")?;
            self.0 = after;
            wire::decode(header.kind.get(), record)
        })
    }
}
