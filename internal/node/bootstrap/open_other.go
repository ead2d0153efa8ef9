//go:build !unix

package bootstrap

const openFlags = 0

// defaultState is where the verdict is kept, below the node's root.
const defaultState = "/ProgramData/Ortet/verdict.json"

// spareState is where it is kept where that cannot be written.
const spareState = "/Windows/Temp/ortet/verdict.json"
