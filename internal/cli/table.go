package cli

import (
	"fmt"
	"io"
	"strings"
)

// cells is a row of a table; what is empty becomes a dash.
func cells(values ...any) (row []string) {
	for _, v := range values {
		row = append(row, dash(fmt.Sprint(v)))
	}
	return row
}

// writeTable writes a table, whose first row is its header, that fits 80 columns.
func writeTable(w io.Writer, rows [][]string, order ...shrink) {
	fit(rows, resultWidth, order)
	writeRows(w, rows)
}

// writeDetails writes a table with lines of their own for what is long: details are those
// of row i+1.
func writeDetails(w io.Writer, rows [][]string, details func(i int) []string, order ...shrink) {
	fit(rows, resultWidth, order)
	wide := widths(rows)
	writeColumns(w, rows[:1], wide)
	for i := range rows[1:] {
		writeColumns(w, rows[i+1:i+2], wide)
		for _, d := range details(i) {
			paragraph(w, resultWidth, "  ", "    ", d)
		}
	}
}

// A shrink says how narrow a column may become.
type shrink struct{ column, least int }

// fit cuts columns, which stand two apart, until a row fits the width.
func fit(rows [][]string, width int, order []shrink) {
	for _, s := range order {
		over := total(rows) - width
		if over <= 0 {
			return
		}
		room := max(s.least, widths(rows)[s.column]-over)
		for _, r := range rows {
			r[s.column] = middle(r[s.column], room)
		}
	}
}

// middle cuts a text in its middle: beginnings and ends of names tell most.
func middle(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	head := (n - 1) / 2
	return string(r[:head]) + "…" + string(r[len(r)-(n-1-head):])
}

// total is how wide rows are.
func total(rows [][]string) int {
	sum := -2
	for _, w := range widths(rows) {
		sum += w + 2
	}
	return sum
}

func widths(rows [][]string) []int {
	var out []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(out) {
				out = append(out, 0)
			}
			out[i] = max(out[i], len([]rune(c)))
		}
	}
	return out
}

func writeRows(w io.Writer, rows [][]string) { writeColumns(w, rows, widths(rows)) }

func writeColumns(w io.Writer, rows [][]string, wide []int) {
	for _, r := range rows {
		var b strings.Builder
		for i, c := range r {
			b.WriteString(c)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", wide[i]-len([]rune(c))+2))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}
