// Package admission tests `ortet admission` as a whole, in this process: on a real API
// server and a simulated Azure, with the code of ortet-node at the other end.
package admission
