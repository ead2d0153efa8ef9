package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/k3s/lifecycle"
)

// prices are the flags that ask for prices.
type prices struct {
	wanted bool
	from   string
	list   *lifecycle.PriceList
}

func (p *prices) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&p.wanted, "prices", false, "show list prices of Azure's public price list, in USD")
	f.StringVar(&p.from, "prices-from", lifecycle.PricesURL, "`URL` of a price list that answers like Azure's, for --prices")
}

func (p *prices) check() error {
	if u, err := url.Parse(p.from); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.RawQuery != "" {
		return usagef("--prices-from %q: want https://HOST/PATH", p.from)
	}
	return nil
}

// price adds prices, or a note why there are none.
func (p *prices) price(ctx context.Context, location string, b *lifecycle.Bill, notes *[]string) {
	if !p.wanted {
		return
	}
	if p.list == nil {
		p.list = &lifecycle.PriceList{URL: p.from, Transport: http.DefaultTransport, Location: location}
	}
	if err := p.list.Price(ctx, b, time.Now()); err != nil {
		*notes = append(*notes, err.Error())
	}
}

// writeBill writes what is billed, and when.
func writeBill(w io.Writer, b *lifecycle.Bill) {
	if len(b.Charges) == 0 {
		return
	}
	rows := [][]string{{"BILLED", "NUMBER", "WHEN"}}
	if b.At != nil {
		rows[0] = append(rows[0], "EACH", b.Currency+"/MONTH")
	}
	for _, c := range b.Charges {
		row := cells(c.What, c.Number, c.When)
		switch {
		case c.Price > 0:
			row = append(row, fmt.Sprintf("%.4f/%s", c.Price, c.Per), fmt.Sprintf("%.2f", c.Month()))
		case b.At != nil:
			row = append(row, "-", "-")
		}
		rows = append(rows, row)
	}
	writeTable(w, rows, shrink{0, 24})
	if b.At != nil {
		var unknown []string
		for _, c := range b.Charges {
			if c.Price == 0 {
				unknown = append(unknown, c.What)
			}
		}
		say(w, "A month: %.2f %s up, %.2f stopped, %.2f after down. List prices of %s for %d hours, without traffic, operations and: %s.",
			b.Up, b.Currency, b.Stopped, b.Down, b.At.UTC().Format(time.DateOnly), lifecycle.HoursOfMonth, dash(strings.Join(unknown, "; ")))
	}
	fmt.Fprintln(w)
}
