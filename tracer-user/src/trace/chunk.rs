//! What an expanded chunk holds.

use zerocopy::FromBytes as _;

use super::TraceError;
use super::cursor::{Cursor, Stop};
use super::format::{EventHeader, SectionHeader, StringHeader, section_kind};
use super::limits::{MAX_STRING, MAX_TABLES};
use super::lookup::Tables;
use super::reader::Reading;
use super::tables::Increment;
use super::wire;
use tracer_records::model::Event;

/// An expanded chunk.
pub struct Chunk<'c, 'a> {
    cursor: &'c Cursor<'a>,
    start: u64,
    raw: &'c [u8],
}

impl<'c, 'a> Chunk<'c, 'a> {
    /// The chunk at offset `start` of the file.
    pub fn new(cursor: &'c Cursor<'a>, start: u64, raw: &'c [u8]) -> Self {
        Self { cursor, start, raw }
    }

    fn corrupt(&self, expected: &str) -> TraceError {
        self.cursor.corrupt(self.start, &format!("{expected} in the chunk"), "something else")
    }

    /// Delivers the chunk; gives the number of its events.
    pub fn sections<E>(
        &self,
        reading: &mut Reading,
        table_bytes: &mut u64,
        on_event: &mut impl FnMut(&Event) -> Result<(), E>,
    ) -> Result<u64, Stop<E>> {
        let mut rest = self.raw;
        let mut events = 0;
        while !rest.is_empty() {
            let (header, after) = SectionHeader::read_from_prefix(rest)
                .map_err(|_| self.corrupt("a whole section header"))?;
            let (body, after) = after
                .split_at_checked(header.bytes.get() as usize)
                .ok_or_else(|| self.corrupt("a whole section"))?;
            rest = after;
            if header.kind.get() == section_kind::EVENTS {
                events += self.events(body, reading, on_event)?;
                continue;
            }
            *table_bytes += body.len() as u64;
            if *table_bytes > MAX_TABLES {
                return Err(self.corrupt("at most 1 GiB of strings and tables so far").into());
            }
            match header.kind.get() {
                section_kind::STRINGS => self.strings(body, &mut reading.tables)?,
                section_kind::TABLES => {
                    let increment: Increment = serde_json::from_slice(body)
                        .map_err(|e| self.corrupt(&format!("tables as JSON ({e})")))?;
                    if let Some(clock) = increment.merge_into(&mut reading.tables) {
                        reading.status.end_clock = Some(clock);
                    }
                }
                _ => {}
            }
        }
        Ok(events)
    }

    fn strings(&self, mut rest: &[u8], tables: &mut Tables) -> Result<(), TraceError> {
        while !rest.is_empty() {
            let (header, after) = StringHeader::read_from_prefix(rest)
                .map_err(|_| self.corrupt("a whole string header"))?;
            let (text, after) = after
                .split_at_checked(header.bytes.get() as usize)
                .filter(|(text, _)| text.len() <= MAX_STRING)
                .ok_or_else(|| self.corrupt("a whole string"))?;
            rest = after;
            let text = str::from_utf8(text).map_err(|_| self.corrupt("a string in UTF-8"))?;
            if header.id.get() != 0 {
                tables.strings.insert(header.id.get(), text.to_owned());
            }
        }
        Ok(())
    }

    fn events<E>(
        &self,
        mut rest: &[u8],
        reading: &mut Reading,
        on_event: &mut impl FnMut(&Event) -> Result<(), E>,
    ) -> Result<u64, Stop<E>> {
        let mut count = 0;
        while !rest.is_empty() {
            let (header, after) = EventHeader::read_from_prefix(rest)
                .map_err(|_| self.corrupt("a whole event header"))?;
            let (record, after) = after
                .split_at_checked(header.bytes.get().into())
                .ok_or_else(|| self.corrupt("a whole event"))?;
            rest = after;
            count += 1;
            let event = wire::decode(header.kind.get(), record).map_err(|e| self.corrupt(e))?;
            if let Some(event) = event {
                reading.status.events += 1;
                on_event(&event).map_err(Stop::Caller)?;
            }
        }
        Ok(count)
    }
}
