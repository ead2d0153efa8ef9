// Command records writes numbered records to a file, each synced to the disk before the
// next. Of each it prints its number, the time when it was on the disk in nanoseconds since
// 1970, and how many microseconds that took.
//
//	records FILE
package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	fmt.Fprintln(os.Stderr, "records:", write(os.Args[1]))
	os.Exit(1)
}

// write returns only an error.
func write(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) // #nosec G302 G703 -- the test's own
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		began := time.Now()
		if _, err := fmt.Fprintln(f, n); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		now := time.Now()
		fmt.Println(n, now.UnixNano(), now.Sub(began).Microseconds())
		time.Sleep(10 * time.Millisecond)
	}
}
