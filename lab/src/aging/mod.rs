//! How does a volume get the state a measurement wants it in?
