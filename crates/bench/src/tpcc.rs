//! A trace of index operations as TPC-C makes them (TPC-C specification, revision 5).
//!
//! 1. The eight indexes are the primary keys of the tables that have one. A key is a number of 64 bits that begins with
//!    the index. So eight indexes can share one tree and one budget, and within each index keys sort as the primary key
//!    does.
//! 2. [`Trace::load`] gives the keys of a freshly populated database (clause 4.3.3) in order: 47 million for 100
//!    warehouses.
//! 3. [`Trace`] plays the five transactions at random warehouses and districts, with the specification's non-uniform
//!    choice of customers and items (clause 2.1.6). Order ids ascend in each district, and deliveries delete the oldest
//!    new order.
//! 4. The mix of transactions is solved for the shares of operations that Roh et al. traced inside PostgreSQL (PVLDB
//!    5(4), 2011, §4.2): 71.5 % point searches, 23.8 % inserts, 3.7 % range searches, 1 % deletes. Their trace had
//!    fewer deliveries than the specification asks for:
//!
//!    | transaction | here | specification |
//!    |---|---|---|
//!    | new order | 41 % | 45 % |
//!    | payment | 39 % | 43 % |
//!    | order status | 17 % | 4 % |
//!    | delivery | 2 % | 4 % |
//!    | stock level | 2 % | 4 % |
//!
//! Invariants: a point search and a delete name an existing key; an insert names a key that never existed; the same
//! seed gives the same trace.

use std::collections::VecDeque;
use std::ops::Range;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Districts of a warehouse.
const DISTRICTS: u64 = 10;
/// Customers, and orders at first, of a district.
const CUSTOMERS: u64 = 3000;
/// Orders of a district that are new at first: the last ones.
const NEW_ORDERS: u64 = 900;
/// Items, and stock of each warehouse.
const ITEMS: u64 = 100_000;
/// Orders read by a stock level transaction.
const LAST_ORDERS: u64 = 20;
/// Lines of an order: this many to [`LINES_MAX`].
const LINES_MIN: u64 = 5;
const LINES_MAX: u64 = 15;

/// Transactions out of a million, in the order of [`Transaction::ALL`]. With n, p, o, d, s of them the operations are
/// 23n + 3p + o + 20d + 201s point searches, 12n inserts, 2o + 20d + s ranges and 10d deletes.
const MIX: [u32; 5] = [407_060, 388_960, 165_680, 20_530, 17_770];

/// One of the eight indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Index {
    /// Warehouses by id.
    Warehouse = 1,
    /// Districts by warehouse and id.
    District = 2,
    /// Customers by warehouse, district and id.
    Customer = 3,
    /// New orders by warehouse, district and order id.
    NewOrder = 4,
    /// Orders by warehouse, district and order id.
    Order = 5,
    /// Order lines by warehouse, district, order id and number.
    OrderLine = 6,
    /// Items by id.
    Item = 7,
    /// Stock by warehouse and item.
    Stock = 8,
}

impl Index {
    /// All eight, in the order of their keys.
    pub const ALL: [Self; 8] = [
        Self::Warehouse,
        Self::District,
        Self::Customer,
        Self::NewOrder,
        Self::Order,
        Self::OrderLine,
        Self::Item,
        Self::Stock,
    ];

    /// The key of a row: 8 bits of index, 16 of warehouse, 4 of district, 28 of order, customer or item, 8 of line.
    const fn key(self, warehouse: u64, district: u64, id: u64, line: u64) -> u64 {
        debug_assert!(warehouse < 1 << 16 && district < 1 << 4 && id < 1 << 28 && line < 1 << 8);
        (self as u64) << 56 | warehouse << 40 | district << 36 | id << 8 | line
    }

    /// The index of a key.
    #[must_use]
    pub fn of(key: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|index| *index as u64 == key >> 56)
    }
}

/// One index operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Look up an existing key.
    Search(u64),
    /// Insert a key that never existed.
    Insert(u64),
    /// Read the keys of a range.
    Range(Range<u64>),
    /// Delete an existing key.
    Delete(u64),
}

impl Operation {
    /// The operation's kind, as an index of [`Operation::NAMES`].
    #[must_use]
    pub const fn kind(&self) -> usize {
        match self {
            Self::Search(_) => 0,
            Self::Insert(_) => 1,
            Self::Range(_) => 2,
            Self::Delete(_) => 3,
        }
    }

    /// The kinds.
    pub const NAMES: [&'static str; 4] = ["point search", "insert", "range search", "delete"];
}

#[derive(Clone, Copy, Debug)]
enum Transaction {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Transaction {
    const ALL: [Self; 5] = [Self::NewOrder, Self::Payment, Self::OrderStatus, Self::Delivery, Self::StockLevel];
}

/// Order ids of a district.
#[derive(Clone, Copy, Debug)]
struct District {
    /// Id of the next new order.
    next: u64,
    /// Id of the oldest new order.
    oldest_new: u64,
}

/// Keys in a freshly populated database of so many warehouses.
#[must_use]
pub fn loaded_keys(warehouses: u64) -> u64 {
    let orders = warehouses * DISTRICTS * CUSTOMERS;
    let lines: u64 = (1..=CUSTOMERS).map(lines).sum::<u64>() * warehouses * DISTRICTS;
    let new_orders = warehouses * DISTRICTS * NEW_ORDERS;
    warehouses + warehouses * DISTRICTS + 2 * orders + new_orders + lines + ITEMS + warehouses * ITEMS
}

/// Lines of an order: 5 to 15 with a mean of 10, as a function of the order's id, so that no state is needed.
const fn lines(order: u64) -> u64 {
    LINES_MIN + crate::keys::mix(order) % (LINES_MAX - LINES_MIN + 1)
}

/// An endless stream of index operations.
#[derive(Debug)]
pub struct Trace {
    warehouses: u64,
    districts: Vec<District>,
    waiting: VecDeque<Operation>,
    random: SmallRng,
}

impl Trace {
    /// A trace on a freshly populated database.
    ///
    /// # Panics
    /// When there is no warehouse, or more than 65,535.
    #[must_use]
    pub fn new(warehouses: u64, seed: u64) -> Self {
        assert!((1..1 << 16).contains(&warehouses), "{warehouses} warehouses");
        let district = District { next: CUSTOMERS + 1, oldest_new: CUSTOMERS - NEW_ORDERS + 1 };
        let count = usize::try_from(warehouses * DISTRICTS).expect("below a million");
        Self {
            warehouses,
            districts: vec![district; count],
            waiting: VecDeque::new(),
            random: SmallRng::seed_from_u64(seed),
        }
    }

    /// The keys of a freshly populated database, in ascending order.
    pub fn load(warehouses: u64) -> impl Iterator<Item = u64> {
        Index::ALL.into_iter().flat_map(move |index| load_index(index, warehouses))
    }

    fn transaction(&mut self) {
        let mut card = self.random.random_range(0..MIX.iter().sum());
        let drawn = Transaction::ALL.into_iter().zip(MIX).find(|(_, share)| {
            let found = card < *share;
            card = card.saturating_sub(*share);
            found
        });
        let warehouse = self.random.random_range(1..=self.warehouses);
        let district = self.random.random_range(1..=DISTRICTS);
        match drawn.map_or(Transaction::NewOrder, |(transaction, _)| transaction) {
            Transaction::NewOrder => self.new_order(warehouse, district),
            Transaction::Payment => self.payment(warehouse, district),
            Transaction::OrderStatus => self.order_status(warehouse, district),
            Transaction::Delivery => (1..=DISTRICTS).for_each(|district| self.delivery(warehouse, district)),
            Transaction::StockLevel => self.stock_level(warehouse, district),
        }
    }

    fn district(&mut self, warehouse: u64, district: u64) -> &mut District {
        let place = usize::try_from((warehouse - 1) * DISTRICTS + district - 1).expect("below a million");
        &mut self.districts[place]
    }

    fn search(&mut self, index: Index, warehouse: u64, district: u64, id: u64) {
        self.waiting.push_back(Operation::Search(index.key(warehouse, district, id, 0)));
    }

    /// NURand(most_or, 1, most) of clause 2.1.6, with the constant 0.
    fn non_uniform(&mut self, most_or: u64, most: u64) -> u64 {
        let one = self.random.random_range(0..=most_or);
        let other = self.random.random_range(1..=most);
        (one | other) % most + 1
    }

    fn customer(&mut self) -> u64 {
        self.non_uniform(1023, CUSTOMERS)
    }

    fn item(&mut self) -> u64 {
        self.non_uniform(8191, ITEMS)
    }

    fn new_order(&mut self, warehouse: u64, district: u64) {
        let customer = self.customer();
        self.search(Index::Warehouse, warehouse, 0, 0);
        self.search(Index::District, warehouse, district, 0);
        self.search(Index::Customer, warehouse, district, customer);
        let known = self.district(warehouse, district);
        let order = known.next;
        known.next += 1;
        for index in [Index::Order, Index::NewOrder] {
            self.waiting.push_back(Operation::Insert(index.key(warehouse, district, order, 0)));
        }
        for line in 1..=lines(order) {
            let item = self.item();
            // One line in a hundred is supplied by another warehouse (clause 2.4.1.5).
            let remote = self.random.random_range(0..100) == 0;
            let from = if remote { self.random.random_range(1..=self.warehouses) } else { warehouse };
            self.search(Index::Item, 0, 0, item);
            self.search(Index::Stock, from, 0, item);
            self.waiting.push_back(Operation::Insert(Index::OrderLine.key(warehouse, district, order, line)));
        }
    }

    fn payment(&mut self, warehouse: u64, district: u64) {
        self.search(Index::Warehouse, warehouse, 0, 0);
        self.search(Index::District, warehouse, district, 0);
        // 15 in a hundred pay at another warehouse (clause 2.5.1.2).
        let remote = self.random.random_range(0..100) < 15;
        let home = if remote { self.random.random_range(1..=self.warehouses) } else { warehouse };
        let customer = self.customer();
        self.search(Index::Customer, home, district, customer);
    }

    fn order_status(&mut self, warehouse: u64, district: u64) {
        let customer = self.customer();
        self.search(Index::Customer, warehouse, district, customer);
        let next = self.district(warehouse, district).next;
        self.range(Index::Order, warehouse, district, next - LAST_ORDERS..next);
        let order = self.random.random_range(next - LAST_ORDERS..next);
        self.range(Index::OrderLine, warehouse, district, order..order + 1);
    }

    fn range(&mut self, index: Index, warehouse: u64, district: u64, ids: Range<u64>) {
        let key = |id| index.key(warehouse, district, id, 0);
        self.waiting.push_back(Operation::Range(key(ids.start)..key(ids.end)));
    }

    fn delivery(&mut self, warehouse: u64, district: u64) {
        let known = self.district(warehouse, district);
        let oldest = known.oldest_new;
        if oldest >= known.next {
            return;
        }
        known.oldest_new += 1;
        self.range(Index::NewOrder, warehouse, district, 0..oldest + 1);
        self.waiting.push_back(Operation::Delete(Index::NewOrder.key(warehouse, district, oldest, 0)));
        self.search(Index::Order, warehouse, district, oldest);
        self.range(Index::OrderLine, warehouse, district, oldest..oldest + 1);
        let customer = self.random.random_range(1..=CUSTOMERS);
        self.search(Index::Customer, warehouse, district, customer);
    }

    fn stock_level(&mut self, warehouse: u64, district: u64) {
        self.search(Index::District, warehouse, district, 0);
        let next = self.district(warehouse, district).next;
        let orders = next - LAST_ORDERS..next;
        self.range(Index::OrderLine, warehouse, district, orders.clone());
        for _ in 0..orders.map(lines).sum() {
            let item = self.item();
            self.search(Index::Stock, warehouse, 0, item);
        }
    }
}

impl Iterator for Trace {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        while self.waiting.is_empty() {
            self.transaction();
        }
        self.waiting.pop_front()
    }
}

fn load_index(index: Index, warehouses: u64) -> Box<dyn Iterator<Item = u64>> {
    let districts =
        move || (1..=warehouses).flat_map(|warehouse| (1..=DISTRICTS).map(move |district| (warehouse, district)));
    let ids = move |ids: Range<u64>| {
        districts().flat_map(move |(warehouse, district)| ids.clone().map(move |id| (warehouse, district, id)))
    };
    let key = move |(warehouse, district, id)| index.key(warehouse, district, id, 0);
    match index {
        Index::Warehouse => Box::new((1..=warehouses).map(move |warehouse| index.key(warehouse, 0, 0, 0))),
        Index::District => Box::new(districts().map(move |(warehouse, district)| index.key(warehouse, district, 0, 0))),
        Index::Customer | Index::Order => Box::new(ids(1..CUSTOMERS + 1).map(key)),
        Index::NewOrder => Box::new(ids(CUSTOMERS - NEW_ORDERS + 1..CUSTOMERS + 1).map(key)),
        Index::OrderLine => Box::new(ids(1..CUSTOMERS + 1).flat_map(move |(warehouse, district, order)| {
            (1..=lines(order)).map(move |line| index.key(warehouse, district, order, line))
        })),
        Index::Item => Box::new((1..=ITEMS).map(move |item| index.key(0, 0, item, 0))),
        Index::Stock => Box::new(
            (1..=warehouses).flat_map(move |warehouse| (1..=ITEMS).map(move |item| index.key(warehouse, 0, item, 0))),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    const OPERATIONS: usize = 400_000;

    #[test]
    fn shares_are_those_of_the_paper() {
        let mut counts = [0; 4];
        let mut indexes = BTreeSet::new();
        for operation in Trace::new(10, 1).take(OPERATIONS) {
            counts[operation.kind()] += 1;
            let (Operation::Search(key) | Operation::Insert(key) | Operation::Delete(key)) = operation else {
                continue;
            };
            indexes.insert(Index::of(key).expect("one of ours") as u8);
        }
        assert_eq!(indexes.len(), 8);
        for (kind, share) in [71.5, 23.8, 3.7, 1.0].into_iter().enumerate() {
            let here = 100.0 * f64::from(counts[kind]) / OPERATIONS as f64;
            assert!((here - share).abs() < 0.15 + share / 50.0, "{}: {here} % for {share} %", Operation::NAMES[kind]);
        }
    }

    #[test]
    fn the_load_ascends_and_has_the_size_it_says() {
        let mut last = 0;
        let mut count = 0;
        for key in Trace::load(2) {
            assert!(key > last, "{key:x} after {last:x}");
            last = key;
            count += 1;
        }
        assert_eq!(count, loaded_keys(2));
        let hundred = loaded_keys(100) * 16;
        assert!((700 << 20..1 << 30).contains(&hundred), "about 1 GB, as in the paper: {hundred}");
    }

    #[test]
    fn operations_name_keys_that_are_there_or_never_were() {
        let mut there: BTreeSet<u64> = Trace::load(1).collect();
        let mut gone = BTreeSet::new();
        for operation in Trace::new(1, 7).take(OPERATIONS) {
            match operation {
                Operation::Search(key) => assert!(there.contains(&key), "{key:x} is searched and not there"),
                Operation::Insert(key) => {
                    assert!(!gone.contains(&key) && there.insert(key), "{key:x} is inserted again")
                }
                Operation::Delete(key) => {
                    assert!(there.remove(&key) && gone.insert(key), "{key:x} is deleted and not there")
                }
                Operation::Range(keys) => assert!(
                    there.range(keys.clone()).next().is_some() || Index::of(keys.start) == Some(Index::NewOrder)
                ),
            }
        }
    }

    #[test]
    fn order_ids_ascend_and_the_oldest_new_order_goes_first() {
        let mut newest = BTreeMap::new();
        let mut oldest = BTreeMap::new();
        let district = |key: u64| key >> 36;
        for operation in Trace::new(3, 5).take(OPERATIONS) {
            match operation {
                Operation::Insert(key) if Index::of(key) == Some(Index::Order) => {
                    assert!(newest.insert(district(key), key).is_none_or(|before| before + (1 << 8) == key));
                }
                Operation::Delete(key) => {
                    assert_eq!(Index::of(key), Some(Index::NewOrder));
                    assert!(oldest.insert(district(key), key).is_none_or(|before| before + (1 << 8) == key));
                }
                _ => {}
            }
        }
        assert_eq!((newest.len(), oldest.len()), (30, 30), "every district of three warehouses takes part");
    }

    /// A few items are read far more often than most: the non-uniform choice of the specification.
    #[test]
    fn items_are_chosen_unevenly() {
        let mut counts = BTreeMap::<u64, usize>::new();
        let mut all = 0;
        for operation in Trace::new(5, 3).take(OPERATIONS) {
            if let Operation::Search(key) = operation
                && Index::of(key) == Some(Index::Item)
            {
                *counts.entry(key).or_default() += 1;
                all += 1;
            }
        }
        let mut sorted: Vec<_> = counts.into_values().collect();
        sorted.sort_unstable_by(|left, right| right.cmp(left));
        let most_wanted: usize = sorted.iter().take(10_000).sum();
        assert!(most_wanted * 100 > all * 40, "a tenth of the items has {most_wanted} of {all}");
        assert!(most_wanted < all, "and not all");
    }

    #[test]
    fn a_seed_names_a_trace() {
        let of = |seed| Trace::new(4, seed).take(5000).collect::<Vec<_>>();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
