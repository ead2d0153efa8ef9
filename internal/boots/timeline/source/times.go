package source

import (
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// The greatest times that a BootReport may have. Source: internal/wire.
const (
	maxWall      = wire.Micros(4102444800 * 1e6)
	maxMonotonic = wire.Micros(100 * 365 * 24 * 3600 * 1e6)
)

const (
	second      = wire.Micros(1e6)
	millisecond = wire.Micros(1e3)
)

// civil is a date and time of day (UTC) since the epoch; false where it is none.
func civil(year, month, day, hour, minute, sec int) (wire.Micros, bool) {
	if year < 1970 || year > 2099 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || sec > 60 || hour < 0 || minute < 0 || sec < 0 {
		return 0, false
	}
	// Days since 1970-03-01 of a calendar whose years begin in March.
	y, m := year, month-3
	if m < 0 {
		y, m = y-1, m+12
	}
	days := y*365 + y/4 - y/100 + y/400 + (m*153+2)/5 + day - 1 - 719468
	return wire.Micros((((days*24+hour)*60)+minute)*60+sec) * second, true
}

// digits reads n digits at the start of s.
func digits(s string, n int) (int, bool) {
	if len(s) < n {
		return 0, false
	}
	v := 0
	for i := range n {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		v = v*10 + int(s[i]-'0')
	}
	return v, true
}

// stamp reads a time that s begins with, as 2024-11-12T17:23:33.123456Z: with a T or a
// blank, a dot or a comma or neither, Z or an offset or none, which is UTC. It returns what
// follows, and how fine the time is.
func stamp(s string) (at wire.Micros, grain wire.Micros, rest string, ok bool) {
	if len(s) < 19 || s[4] != '-' || s[7] != '-' || s[10] != ' ' && s[10] != 'T' || s[13] != ':' || s[16] != ':' {
		return 0, 0, s, false
	}
	var v [6]int
	for i, at := range [...]int{0, 5, 8, 11, 14, 17} {
		n := 2
		if i == 0 {
			n = 4
		}
		if v[i], ok = digits(s[at:], n); !ok {
			return 0, 0, s, false
		}
	}
	at, ok = civil(v[0], v[1], v[2], v[3], v[4], v[5])
	if !ok {
		return 0, 0, s, false
	}
	rest, grain = s[19:], second
	if len(rest) > 1 && (rest[0] == '.' || rest[0] == ',') && rest[1] >= '0' && rest[1] <= '9' {
		i, unit := 1, second
		for ; i < len(rest) && rest[i] >= '0' && rest[i] <= '9'; i++ {
			unit /= 10
			at += wire.Micros(rest[i]-'0') * unit
			grain = max(unit, 1)
		}
		rest = rest[i:]
	}
	if grain == 1 {
		grain = 0
	}
	switch {
	case strings.HasPrefix(rest, "Z"):
		rest = rest[1:]
	case len(rest) >= 5 && (rest[0] == '+' || rest[0] == '-'):
		hour, ok1 := digits(rest[1:], 2)
		minutes := strings.TrimPrefix(rest[3:], ":")
		minute, ok2 := digits(minutes, 2)
		if !ok1 || !ok2 {
			break
		}
		by := wire.Micros(hour*60+minute) * 60 * second
		if rest[0] == '+' {
			by = -by
		}
		at, rest = at+by, minutes[2:]
	}
	if at < 0 {
		return 0, 0, s, false
	}
	return at, grain, rest, true
}

var months = [...]string{"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}

func month(s string) int {
	for i := range months {
		if s == months[i] {
			return i + 1
		}
	}
	return 0
}

// clockTime reads 17:23:33 with an optional fraction.
func clockTime(s string) (h, m, sec int, fraction wire.Micros, ok bool) {
	if len(s) < 8 || s[2] != ':' || s[5] != ':' {
		return 0, 0, 0, 0, false
	}
	h, ok1 := digits(s, 2)
	m, ok2 := digits(s[3:], 2)
	sec, ok3 := digits(s[6:], 2)
	if !ok1 || !ok2 || !ok3 {
		return 0, 0, 0, 0, false
	}
	unit := second
	if rest := s[8:]; rest != "" {
		if rest[0] != '.' {
			return 0, 0, 0, 0, false
		}
		for _, c := range []byte(rest[1:]) {
			if c < '0' || c > '9' {
				return 0, 0, 0, 0, false
			}
			unit /= 10
			fraction += wire.Micros(c-'0') * unit
		}
	}
	return h, m, sec, fraction, true
}

// dateText reads the times that systemctl and date print, in UTC:
//
//	Tue 2024-11-12 17:23:33 UTC         (systemctl, also with a fraction)
//	Tue Nov 12 17:24:06 UTC 2024        (date)
//	Tue Nov 12 05:24:06 PM UTC 2024     (date, in an American locale)
//	Tue, 12 Nov 2024 17:23:33 +0000     (RFC 2822)
//	2024-11-12 17:23:33.123             (date +"%F %T.%3N")
//
// Of time zones only those that are UTC are taken: what others mean at which time
// is not known here.
func dateText(s string) (at wire.Micros, ok bool) {
	s = strings.TrimSpace(s)
	if len(s) > 64 {
		return 0, false
	}
	if at, _, rest, ok := stamp(s); ok {
		return at, zoneIsUTC(rest)
	}
	f := strings.Fields(s)
	if len(f) < 3 {
		return 0, false
	}
	if len(f[0]) == 4 && f[0][3] == ',' && len(f) >= 5 { // RFC 2822
		return datePieces(f[3], f[2], f[1], f[4:], "")
	}
	if len(f[0]) != 3 {
		return 0, false
	}
	if len(f[1]) == 10 && f[1][4] == '-' {
		at, _, rest, ok := stamp(strings.Join(f[1:], " "))
		return at, ok && zoneIsUTC(rest)
	}
	if month(f[1]) == 0 || len(f) < 5 {
		return 0, false
	}
	half := ""
	rest := f[3:]
	if len(rest) > 2 && (rest[1] == "AM" || rest[1] == "PM") {
		half = rest[1]
		rest = append([]string{rest[0]}, rest[2:]...)
	}
	year := rest[len(rest)-1]
	return datePieces(year, f[1], f[2], rest[:len(rest)-1], half)
}

func zoneIsUTC(s string) bool {
	switch strings.TrimSpace(s) {
	case "", "UTC", "GMT", "Z", "+0000", "+00:00":
		return true
	}
	return false
}

// datePieces puts a date together; timeAndZone has the time and what follows it.
func datePieces(year, mon, day string, timeAndZone []string, half string) (wire.Micros, bool) {
	y, err1 := strconv.Atoi(year)
	d, err2 := strconv.Atoi(day)
	if err1 != nil || err2 != nil || len(timeAndZone) == 0 || month(mon) == 0 {
		return 0, false
	}
	h, m, sec, fraction, ok := clockTime(timeAndZone[0])
	if !ok || len(timeAndZone) > 1 && !zoneIsUTC(timeAndZone[1]) {
		return 0, false
	}
	switch {
	case half == "PM" && h < 12:
		h += 12
	case half == "AM" && h == 12:
		h = 0
	}
	at, ok := civil(y, month(mon), d, h, m, sec)
	return at + fraction, ok
}

// timespan reads how systemd prints a duration: "16min 55.434s", "270ms",
// "1h 2min 3s", "0". Source: systemd, src/basic/time-util.c, format_timespan.
func timespan(s string) (wire.Micros, bool) {
	s = strings.TrimSpace(s)
	if s == "0" {
		return 0, true
	}
	if s == "" || len(s) > 80 {
		return 0, false
	}
	var total float64
	for s != "" {
		i := 0
		for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.') {
			i++
		}
		number := s[:i]
		for i < len(s) && s[i] == ' ' { // "380 ms"
			i++
		}
		j := i
		for j < len(s) && (s[j] >= 'a' && s[j] <= 'z' || s[j] >= 0x80) {
			j++
		}
		v, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return 0, false
		}
		unit, ok := spanUnit(s[i:j])
		if !ok {
			return 0, false
		}
		total += v * unit
		s = strings.TrimLeft(s[j:], " ")
	}
	if total > float64(maxMonotonic) {
		return 0, false
	}
	return wire.Micros(total + 0.5), true
}

func spanUnit(s string) (float64, bool) {
	switch s {
	case "us", "µs", "μs":
		return 1, true
	case "ms":
		return 1e3, true
	case "s":
		return 1e6, true
	case "min":
		return 60e6, true
	case "h":
		return 3600e6, true
	case "d", "day", "days":
		return 86400e6, true
	case "w", "week", "weeks":
		return 7 * 86400e6, true
	case "month", "months":
		return 2629800e6, true
	case "y", "year", "years":
		return 31557600e6, true
	}
	return 0, false
}

// seconds reads a number of seconds with a fraction.
func seconds(s string) (wire.Micros, bool) {
	if len(s) == 0 || len(s) > 24 || s[0] == '-' || s[0] == '+' {
		return 0, false
	}
	whole, fraction, _ := strings.Cut(s, ".")
	v, err := strconv.ParseInt(whole, 10, 48)
	if err != nil {
		return 0, false
	}
	at, unit := wire.Micros(v)*second, second
	for _, c := range []byte(fraction) {
		if c < '0' || c > '9' {
			return 0, false
		}
		unit /= 10
		at += wire.Micros(c-'0') * unit
	}
	return at, true
}

// micros reads a number of microseconds, in the form of the journal and systemctl.
func micros(s []byte) (wire.Micros, bool) {
	if len(s) == 0 || len(s) > 17 {
		return 0, false
	}
	var v wire.Micros
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + wire.Micros(c-'0')
	}
	return v, true
}

// goDuration reads a duration as Go prints it ("1.2s"); 0 where it is none.
func goDuration(s string) wire.Micros {
	if len(s) > 32 {
		return 0
	}
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if err != nil || d < 0 {
		return 0
	}
	return wire.MicrosOf(d)
}
