package azsim

import (
	"net/url"
	"strconv"
)

// page answers one page of a list of entries.
func (c *call) page(list []*entry) *reply {
	items := make([]any, len(list))
	for i, e := range list {
		items[i] = c.render(e)
	}
	return c.pageOf(items)
}

// pageOf answers one page of a list whose order does not change.
func (c *call) pageOf(items []any) *reply {
	from, _ := strconv.Atoi(c.query("$skiptoken"))
	from = min(max(from, 0), len(items))
	size := c.s.PageSize
	if top, err := strconv.Atoi(c.query("$top")); err == nil && top > 0 {
		size = min(size, top)
	}
	to := min(from+size, len(items))
	body := map[string]any{"value": append([]any{}, items[from:to]...)} // an empty list is no null
	if to < len(items) {
		q := url.Values{}
		for k, v := range c.r.URL.Query() {
			q[k] = v
		}
		q.Set("$skiptoken", strconv.Itoa(to))
		body["nextLink"] = c.base() + c.r.URL.EscapedPath() + "?" + q.Encode()
	}
	return ok(body)
}
