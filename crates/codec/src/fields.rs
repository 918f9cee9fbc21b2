//! Fields one behind the other.

/// Bytes still to be read. A field is none where the bytes end before.
#[derive(Clone, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `length` bytes.
    #[inline]
    pub fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Two bytes.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A block, after its length of four bytes.
    #[inline]
    pub fn block(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.bytes(usize::try_from(length).ok()?)
    }

    /// Whether nothing is left.
    #[must_use]
    pub const fn end(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_in_order_and_end_with_the_bytes() {
        let mut bytes = vec![7, 1, 0, 2, 0, 0, 0];
        bytes.extend_from_slice(&3_u64.to_le_bytes());
        bytes.extend_from_slice(&[2, 0, 0, 0, b'a', b'b', 9, 9]);
        let mut fields = Fields(&bytes);
        assert_eq!((fields.u8(), fields.u16(), fields.u32()), (Some(7), Some(1), Some(2)));
        assert_eq!((fields.u64(), fields.block()), (Some(3), Some(&b"ab"[..])));
        assert_eq!((fields.u32(), fields.u64(), fields.end()), (None, None, false));
        assert_eq!((fields.array(), fields.end(), fields.u8()), (Some([9, 9]), true, None));
    }
}
