package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// Link is a line of what `systemd-analyze critical-chain` prints.
type Link struct {
	Unit  string
	Depth int         // 0: the root
	At    wire.Micros // since the start of userspace; printed after "@"
	HasAt bool
	Took  wire.Micros // printed after "+"; 0: it is not printed
	Last  bool        // no other of the same depth follows below the same unit
	Again bool        // it was printed before, with what is below it: "..." follows
}

// CriticalChain is what `systemd-analyze critical-chain --fuzz=FUZZ UNIT` prints
// of these units: from each unit on, of those that it is ordered after the one
// that was active last, and those that were active at most fuzz earlier. It does
// not ask whether that was before the unit began, and nothing of a wait is in it.
// It is nil while the boot has not finished, where systemd-analyze refuses, but
// for a report that was made of printed chains.
//
// Source: systemd, src/analyze/analyze-critical-chain.c and analyze-time-data.c.
func CriticalChain(r wire.BootReport, unit string, fuzz wire.Micros) []Link {
	finish := r.System.Finish
	if finish == 0 {
		if !r.System.Relative {
			return nil
		}
		finish = maxTime
	}
	c := chainer{fuzz: max(fuzz, 0), userspace: r.System.Userspace, finish: finish, units: make(map[string]*wire.BootUnit, len(r.Units)), printed: map[string]bool{}}
	from := r.System.Began()
	for i := range r.Units {
		u := &r.Units[i]
		if u.Activating > 0 && u.Activating >= from && (u.Activated == 0 || u.Activated >= from) {
			c.units[u.Name] = u
		}
	}
	if u := c.units[unit]; u != nil {
		root := Link{Unit: unit, Took: took(u), Last: true}
		if root.Took == 0 && u.Activated > c.userspace {
			root.At, root.HasAt = u.Activated-c.userspace, true
		}
		c.links = append(c.links, root)
	}
	for i := range r.Units {
		if r.Units[i].Name == unit {
			c.below(&r.Units[i], 1)
		}
	}
	return c.links
}

type chainer struct {
	fuzz, userspace, finish wire.Micros
	units                   map[string]*wire.BootUnit
	printed                 map[string]bool
	links                   []Link
}

// took is what systemd-analyze calls the time that a unit took.
func took(u *wire.BootUnit) wire.Micros {
	switch {
	case u.Activated >= u.Activating:
		return u.Activated - u.Activating
	case u.Deactivated >= u.Activating:
		return u.Deactivated - u.Activating
	}
	return 0
}

func (c *chainer) below(u *wire.BootUnit, depth int) {
	c.printed[u.Name] = true
	var deps []*wire.BootUnit
	var longest wire.Micros
	for _, name := range u.After {
		if d := c.units[name]; d != nil && d.Activated > 0 && d.Activated <= c.finish {
			deps = append(deps, d)
			longest = max(longest, d.Activated)
		}
	}
	deps = slices.DeleteFunc(deps, func(d *wire.BootUnit) bool { return longest-d.Activated > c.fuzz })
	slices.SortStableFunc(deps, func(x, y *wire.BootUnit) int { return cmp.Compare(y.Activated, x.Activated) })
	for i, d := range deps {
		l := Link{Unit: d.Name, Depth: depth, Last: i == len(deps)-1, Again: c.printed[d.Name]}
		if d.Activating >= c.userspace {
			l.HasAt, l.Took = true, took(d)
			l.At = d.Activated - c.userspace
			if l.Took > 0 {
				l.At = d.Activating - c.userspace
			}
		}
		c.links = append(c.links, l)
		if !l.Again {
			c.below(d, depth+1)
		}
	}
}

// ChainText is a chain as systemd-analyze prints it, without colours and the
// heading.
func ChainText(links []Link) string {
	var b strings.Builder
	var branches []bool // of each depth: more follows
	for _, l := range links {
		branches = append(branches[:max(0, min(l.Depth-1, len(branches)))], !l.Last)
		indent := ""
		if l.Depth > 0 {
			for _, more := range branches[:len(branches)-1] {
				if more {
					indent += "│ "
				} else {
					indent += "  "
				}
			}
			b.WriteString(indent)
			if l.Last {
				b.WriteString("└─")
			} else {
				b.WriteString("├─")
			}
		}
		b.WriteString(l.Unit)
		if l.HasAt {
			b.WriteString(" @" + timespan(l.At))
		}
		if l.Took > 0 {
			b.WriteString(" +" + timespan(l.Took))
		}
		b.WriteByte('\n')
		if l.Again {
			b.WriteString(indent)
			if l.Last {
				b.WriteString("  ")
			} else {
				b.WriteString("│ ")
			}
			b.WriteString("└─...\n")
		}
	}
	return b.String()
}

// timespan writes a duration as systemd does where it wants milliseconds.
// Source: systemd, src/basic/time-util.c, format_timespan.
func timespan(t wire.Micros) string {
	if t <= 0 {
		return "0"
	}
	var out []string
	for _, u := range []struct {
		name   string
		is     wire.Micros
		digits int
	}{
		{"y", 31557600 * second, 0}, {"month", 2629800 * second, 0}, {"w", 7 * 86400 * second, 0}, {"d", 86400 * second, 0}, {"h", 3600 * second, 0},
		{"min", 60 * second, 0}, {"s", second, 3}, {"ms", second / 1000, 0}, {"us", 1, 0},
	} {
		if t <= 0 || t < second/1000 && len(out) > 0 {
			break
		}
		if t < u.is {
			continue
		}
		whole, rest := t/u.is, t%u.is
		if u.digits > 0 && rest > 0 {
			out = append(out, fmt.Sprintf("%d.%03d%s", whole, rest/1000, u.name))
			break
		}
		out = append(out, fmt.Sprintf("%d%s", whole, u.name))
		t = rest
	}
	return strings.Join(out, " ")
}
