//! How is the kernel's tree of ages balanced?
//!
//! A textbook red-black tree (Linux's `lib/rbtree.c` gives the same shapes), with insertion only: the result of a
//! search depends on the tree's shape.

/// Ages in the order in which they were inserted, linked.
#[derive(Default)]
pub struct Tree {
    nodes: Vec<Node>,
    root: Option<usize>,
}

struct Node {
    age: u64,
    /// Left and right.
    below: [Option<usize>; 2],
    above: Option<usize>,
    red: bool,
}

impl Tree {
    /// Inserts after all equal ages.
    pub fn insert(&mut self, age: u64) {
        let (above, new) = (self.last_on_the_way_to(age), self.nodes.len());
        self.nodes.push(Node { age, below: [None; 2], above, red: true });
        match above {
            None => self.root = Some(new),
            Some(above) => {
                let side = usize::from(age >= self.nodes[above].age);
                self.nodes[above].below[side] = Some(new);
            }
        }
        self.balance(new);
    }

    /// The last node on the path to where `age` would be inserted, as its index in the order of insertion.
    pub fn last_on_the_way_to(&self, age: u64) -> Option<usize> {
        let mut last = None;
        let mut at = self.root;
        while let Some(n) = at {
            last = at;
            at = self.nodes[n].below[usize::from(age >= self.nodes[n].age)];
        }
        last
    }

    fn side(&self, above: usize, n: usize) -> usize {
        usize::from(self.nodes[above].below[1] == Some(n))
    }

    fn balance(&mut self, mut n: usize) {
        while let Some(parent) = self.nodes[n].above.filter(|&p| self.nodes[p].red) {
            // A red node is not the root, so it has a parent.
            let Some(grand) = self.nodes[parent].above else { break };
            let side = self.side(grand, parent);
            let uncle = self.nodes[grand].below[1 - side].filter(|&u| self.nodes[u].red);
            if let Some(uncle) = uncle {
                self.nodes[parent].red = false;
                self.nodes[uncle].red = false;
                self.nodes[grand].red = true;
                n = grand;
                continue;
            }
            let mut top = parent;
            if self.side(parent, n) != side {
                self.rotate(parent, side);
                top = n;
            }
            self.nodes[top].red = false;
            self.nodes[grand].red = true;
            self.rotate(grand, 1 - side);
            break;
        }
        if let Some(root) = self.root {
            self.nodes[root].red = false;
        }
    }

    /// Moves `n` down to `side`, and its child on the other side up.
    fn rotate(&mut self, n: usize, side: usize) {
        let Some(up) = self.nodes[n].below[1 - side] else { return };
        let (above, between) = (self.nodes[n].above, self.nodes[up].below[side]);
        match above {
            None => self.root = Some(up),
            Some(above) => {
                let side = self.side(above, n);
                self.nodes[above].below[side] = Some(up);
            }
        }
        self.nodes[up].above = above;
        self.nodes[up].below[side] = Some(n);
        self.nodes[n].above = Some(up);
        self.nodes[n].below[1 - side] = between;
        if let Some(between) = between {
            self.nodes[between].above = Some(n);
        }
    }
}
