//! A profile as text: an object of JSON whose fields are those of [`DeviceProfile`], in any order.
//!
//! Fields that are not known do not matter. A missing one is an error.

use std::str::FromStr;

use super::{DeviceProfile, DurableWriteCost, ReadCost, WriteCost};
use crate::BackendKind;
use crate::json::{Value, Writer, parse};

impl DeviceProfile {
    pub(crate) fn to_text(&self) -> String {
        let mut writer = Writer::default();
        writer.object(|object| {
            let float = |object: &mut Writer, name: &str, value: f64| object.field(name, |field| field.float(value));
            let durable = |object: &mut Writer, name: &str, cost: DurableWriteCost| {
                object.field(name, |field| {
                    field.object(|object| {
                        float(object, "flushed_us", cost.flushed_us);
                        float(object, "dsync_us", cost.dsync_us);
                    });
                });
            };
            object.field("version", |field| field.plain(self.version));
            object.field("device", |field| field.plain(self.device));
            object.field("backend", |field| field.string(self.backend.name()));
            object.field("measured_at", |field| field.plain(self.measured_at));
            object.field("direct", |field| field.plain(self.direct));
            float(object, "read_us", self.read_us);
            float(object, "write_us", self.write_us);
            float(object, "batched_read_us", self.batched_read_us);
            float(object, "batched_write_us", self.batched_write_us);
            let by_size = |item: &mut Writer, (pages, alone_us, batched_us): (usize, f64, f64)| {
                item.object(|object| {
                    object.field("pages", |field| field.plain(pages));
                    float(object, "alone_us", alone_us);
                    float(object, "batched_us", batched_us);
                });
            };
            let read = |item: &mut Writer, cost: &ReadCost| by_size(item, (cost.pages, cost.alone_us, cost.batched_us));
            let write =
                |item: &mut Writer, cost: &WriteCost| by_size(item, (cost.pages, cost.alone_us, cost.batched_us));
            object.field("reads", |field| field.list(&self.reads, read));
            object.field("writes", |field| field.list(&self.writes, write));
            float(object, "flushed_write_us", self.flushed_write_us);
            durable(object, "durable_direct", self.durable_direct);
            durable(object, "durable_buffered", self.durable_buffered);
            object.field("best_depth", |field| field.plain(self.best_depth));
            float(object, "spread", self.spread);
        });
        writer.finish()
    }

    /// The profile of this text. Its figures may be any.
    ///
    /// # Errors
    /// The defect.
    pub(crate) fn from_text(bytes: &[u8]) -> Result<Self, String> {
        let value = parse(bytes)?;
        let float = |name: &str| value.field(name, Value::number);
        Ok(Self {
            version: value.field("version", Value::number)?,
            device: value.field("device", Value::number)?,
            backend: value.field("backend", |value| BackendKind::from_str(value.text()?))?,
            measured_at: value.field("measured_at", Value::number)?,
            direct: value.field("direct", Value::bool)?,
            read_us: float("read_us")?,
            write_us: float("write_us")?,
            batched_read_us: float("batched_read_us")?,
            batched_write_us: float("batched_write_us")?,
            reads: value.field("reads", |reads| reads.list(read))?,
            writes: value.field("writes", |writes| writes.list(write))?,
            flushed_write_us: float("flushed_write_us")?,
            durable_direct: value.field("durable_direct", durable)?,
            durable_buffered: value.field("durable_buffered", durable)?,
            best_depth: value.field("best_depth", Value::number)?,
            spread: float("spread")?,
        })
    }
}

fn read(value: &Value) -> Result<ReadCost, String> {
    let float = |name: &str| value.field(name, Value::number);
    let (alone_us, batched_us) = (float("alone_us")?, float("batched_us")?);
    Ok(ReadCost { pages: value.field("pages", Value::number)?, alone_us, batched_us })
}

fn write(value: &Value) -> Result<WriteCost, String> {
    let ReadCost { pages, alone_us, batched_us } = read(value)?;
    Ok(WriteCost { pages, alone_us, batched_us })
}

fn durable(value: &Value) -> Result<DurableWriteCost, String> {
    let float = |name: &str| value.field(name, Value::number);
    Ok(DurableWriteCost { flushed_us: float("flushed_us")?, dsync_us: float("dsync_us")? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A profile with a figure that is hard to write.
    fn profile(figure: f64, device: u64) -> DeviceProfile {
        let mut profile = DeviceProfile { device, measured_at: device / 3, spread: figure, ..DeviceProfile::default() };
        profile.reads[3].batched_us = figure;
        profile.writes.truncate(2);
        profile.durable_buffered.dsync_us = figure;
        profile
    }

    #[test]
    fn the_text_has_a_line_for_each_figure() {
        let text = profile(1.5, u64::MAX).to_text();
        let begin = "{\n  \"version\": 5,\n  \"device\": 18446744073709551615,\n  \"backend\": \"sync\",\n";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.contains("  \"writes\": [\n    {\n      \"pages\": 1,\n      \"alone_us\": 30.0,\n"), "{text}");
        assert!(text.ends_with("  \"best_depth\": 64,\n  \"spread\": 1.5\n}"), "{text}");
    }

    #[test]
    fn a_field_that_is_missing_or_of_another_kind_is_told() {
        let text = profile(1.5, 7).to_text();
        for (from, to, problem) in [
            ("\"device\": 7,\n", "", "missing field `device`"),
            ("\"device\": 7,", "\"device\": -7,", "field `device`: -7 is not a u64"),
            ("\"direct\": true", "\"direct\": 1", "field `direct`: a number instead of a truth value"),
            ("\"sync\"", "\"none\"", "field `backend`: unknown backend \"none\""),
            ("\"spread\": 1.5", "\"spread\": null", "field `spread`: null instead of a number"),
            ("\"alone_us\": 80.0", "\"alone\": 80.0", "field `reads`: missing field `alone_us`"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text);
            let found = DeviceProfile::from_text(changed.as_bytes()).expect_err("damaged");
            assert!(found.starts_with(problem), "{found}");
        }
        let more = text.replacen("\"device\"", "\"later\": [{\"x\": null}], \"device\"", 1);
        assert_eq!(DeviceProfile::from_text(more.as_bytes()), Ok(profile(1.5, 7)));
    }

    proptest! {
        #[test]
        fn a_profile_comes_back(figure in prop::num::f64::ANY, device: u64) {
            let profile = profile(figure, device);
            match DeviceProfile::from_text(profile.to_text().as_bytes()) {
                Ok(back) => prop_assert_eq!(back, profile),
                Err(problem) => prop_assert!(!figure.is_finite() && problem.contains("null"), "{}", problem),
            }
        }

        #[cfg(feature = "serde")]
        #[test]
        fn the_text_is_the_one_of_the_version_before(device: u64, figure: u32) {
            let profile = profile(f64::from(figure) / 1000.0, device);
            let text = serde_json::to_string_pretty(&profile).expect("plain data");
            prop_assert_eq!(&profile.to_text(), &text);
            prop_assert_eq!(DeviceProfile::from_text(text.as_bytes()), Ok(profile));
        }
    }
}
