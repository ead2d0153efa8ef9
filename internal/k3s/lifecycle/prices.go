package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// PricesURL is Azure's public price list, which wants no credentials (Azure, "Retail Prices
// REST API").
const PricesURL = "https://prices.azure.com/api/retail/prices"

// maxPrice is more than anything here costs: a larger one is an error of the list.
const maxPrice = 100000

// HoursOfMonth is what Azure's price pages reckon with.
const HoursOfMonth = 730

// A meter is what something is billed by: a VM size, or a meter of a service.
type meter struct {
	size          string
	spot          bool
	name, service string
}

// A PriceList asks for prices once each.
type PriceList struct {
	URL       string
	Transport http.RoundTripper
	Location  string
	currency  string // of all prices, once there is one
	known     map[string]item
}

// An item is an entry of the price list.
type item struct {
	Currency string  `json:"currencyCode"`
	Price    float64 `json:"retailPrice"`
	Unit     string  `json:"unitOfMeasure"` // "1 Hour", "1/Month"
	Product  string  `json:"productName"`   // "Virtual Machines Dsv5 Series Windows"
	SKU      string  `json:"skuName"`       // "D2s v5 Spot"
}

// Price sets the prices of a bill, in 20 seconds at most. With an error the bill is as it
// was; a meter that is not in the list has no price.
func (l *PriceList) Price(ctx context.Context, b *Bill, now time.Time) error {
	priced := Bill{Charges: slices.Clone(b.Charges), At: &now}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for i := range priced.Charges {
		c := &priced.Charges[i]
		if c.meter == (meter{}) {
			continue
		}
		for _, location := range []string{l.Location, "Global"} {
			found, err := l.find(ctx, c.meter, location)
			if err != nil {
				return fmt.Errorf("cannot read the price of %s: %w", c.What, err)
			}
			if found.Price > 0 {
				c.Price, c.Per = found.Price, units[found.Unit]
				break
			}
		}
		priced.Up += c.Month()
		if c.When != BilledUp {
			priced.Stopped += c.Month()
		}
		if c.When == BilledAlways {
			priced.Down += c.Month()
		}
	}
	if priced.Currency = l.currency; l.currency == "" {
		return errors.New("cannot read prices: the list has none for " + l.Location)
	}
	*b = priced
	return nil
}

var (
	units    = map[string]string{"1 Hour": "hour", "1/Month": "month"}
	currency = regexp.MustCompile(`^[A-Z]{3}$`)
	quoted   = strings.NewReplacer("'", "''")
)

// find returns a meter's entry; one without a price is none.
func (l *PriceList) find(ctx context.Context, m meter, location string) (item, error) {
	filter := fmt.Sprintf("armRegionName eq '%s' and priceType eq 'Consumption' and ", quoted.Replace(location))
	if m.size != "" {
		filter += fmt.Sprintf("serviceName eq 'Virtual Machines' and armSkuName eq '%s'", quoted.Replace(m.size))
	} else {
		filter += fmt.Sprintf("serviceName eq '%s' and meterName eq '%s'", m.service, m.name)
	}
	key := fmt.Sprint(filter, m.spot)
	if found, some := l.known[key]; some {
		return found, nil
	}
	all, err := l.ask(ctx, filter)
	if err != nil {
		return item{}, err
	}
	var found item
	for _, i := range all {
		other := strings.Contains(i.Product, "Windows") || strings.Contains(i.SKU, "Low Priority") || strings.HasSuffix(i.SKU, "Spot") != m.spot
		if found.Price > 0 || m.size != "" && other || i.Price <= 0 || i.Price > maxPrice || units[i.Unit] == "" {
			continue
		}
		if !currency.MatchString(i.Currency) || l.currency != "" && l.currency != i.Currency {
			return item{}, fmt.Errorf("currency is %.10q", i.Currency)
		}
		found, l.currency = i, i.Currency
	}
	if l.known == nil {
		l.known = map[string]item{}
	}
	l.known[key] = found
	return found, nil
}

// ask reads one page, which has 100 entries at most.
func (l *PriceList) ask(ctx context.Context, filter string) ([]item, error) {
	query := "?" + strings.ReplaceAll(url.Values{"$filter": {filter}}.Encode(), "+", "%20")
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL+query, nil)
	if err != nil {
		return nil, err
	}
	answer, err := l.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // only read
	var page struct {
		Items *[]item `json:"Items"`
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answer is HTTP %d", answer.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, 1<<20)).Decode(&page); err != nil || page.Items == nil {
		return nil, errors.Join(ctx.Err(), errors.New("answer is no price list"))
	}
	return *page.Items, nil
}
