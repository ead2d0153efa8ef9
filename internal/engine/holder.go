package engine

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Liveness is what is known of another process.
type Liveness int

// What can be known of a holder's process.
const (
	Unknown Liveness = iota // it runs elsewhere, or did
	Alive
	Dead
)

// LocalHolder names this process for a Lease: host name, process id, where and
// since when that id is valid (boot id, pid namespace, start time), and a random
// part, "host/1234/<boot id>_<pid namespace>_<start>/0011aabb". The middle part is "-"
// where the system does not say.
func LocalHolder() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	pid := os.Getpid()
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails, by its documentation
	return fmt.Sprintf("%s/%d/%s/%s", host, pid, processMark(pid), hex.EncodeToString(random[:]))
}

// processMark tells one use of a process id from any other, on any machine: ""
// where the process does not run, "-" where the system does not say.
func processMark(pid int) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "-"
	}
	namespace, err := os.Readlink("/proc/self/ns/pid") // "pid:[4026531836]"
	if err != nil {
		return "-"
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if os.IsNotExist(err) {
		return ""
	}
	if err != nil {
		return "-"
	}
	// The command, in parentheses, may hold anything; start time is the 20th
	// field after it (proc(5): the 22nd of all).
	_, rest, ok := cutLast(string(stat), ")")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return "-"
	}
	if fields[0] == "Z" || fields[0] == "X" { // dead, not yet waited for
		return ""
	}
	return strings.Join([]string{
		strings.TrimSpace(string(boot)),
		strings.Trim(strings.TrimPrefix(namespace, "pid:"), "[]"),
		fields[19],
	}, "_")
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// LocalLiveness says whether the process of a LocalHolder name runs, where it
// is or was in this process's own pid namespace since the machine's last boot.
func LocalLiveness(holder string) Liveness {
	parts := strings.Split(holder, "/")
	if len(parts) < 3 {
		return Unknown
	}
	pid, err := strconv.Atoi(parts[1])
	theirs := strings.Split(parts[2], "_")
	own := strings.Split(processMark(os.Getpid()), "_")
	if err != nil || pid <= 0 || len(theirs) != 3 || len(own) != 3 {
		return Unknown
	}
	if theirs[0] != own[0] || theirs[1] != own[1] {
		return Unknown
	}
	switch mark := processMark(pid); mark {
	case parts[2]:
		return Alive
	case "-":
		return Unknown
	}
	return Dead
}
