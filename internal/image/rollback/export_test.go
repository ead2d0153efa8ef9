package rollback

// Restorable decides what becomes of the original's extensions.
var Restorable = restorable
