package arm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/ortet/ortet/internal/fleet"
)

// skuVersion is the API version of the SDK's ResourceSKUsClient.
const skuVersion = "2021-07-01"

// Size says what a VM size can do in a region. The catalogue of a region has
// several megabytes, so it is read as a stream that ends with the size found.
func (c *Cloud) Size(ctx context.Context, subscription, location, size string) (fleet.SizeInfo, error) {
	const op = "look up a VM size"
	on := fleet.ResourceID("/subscriptions/" + subscription + "/providers/Microsoft.Compute/skus")
	if !fleet.ValidName(subscription) {
		return fleet.SizeInfo{}, failed(ctx, op, on, &fleet.Error{Kind: fleet.KindInvalid, Err: fmt.Errorf("%q is no subscription", subscription)})
	}
	if strings.ContainsAny(location, "'") {
		return fleet.SizeInfo{}, failed(ctx, op, on, &fleet.Error{Kind: fleet.KindInvalid, Err: fmt.Errorf("%q is no region", location)})
	}
	q := url.Values{"api-version": {skuVersion}, "$filter": {"location eq '" + location + "'"}}
	next := runtime.JoinPaths(c.raw.Endpoint(), "/subscriptions/"+url.PathEscape(subscription)+"/providers/Microsoft.Compute/skus") +
		"?" + strings.ReplaceAll(q.Encode(), "+", "%20")
	for n := 0; next != ""; n++ {
		if n == maxPages {
			return fleet.SizeInfo{}, endless(op, on)
		}
		var found *skuAnswer
		var err error
		next, err = c.streamSKUs(ctx, next, func(sku *skuAnswer) bool {
			if !strings.EqualFold(sku.ResourceType, "virtualMachines") || !strings.EqualFold(sku.Name, size) || !offered(sku, location) {
				return true
			}
			found = sku
			return false
		})
		if err != nil {
			return fleet.SizeInfo{}, failed(ctx, op, on, err)
		}
		if found != nil {
			return sizeOf(found), nil
		}
	}
	return fleet.SizeInfo{}, &fleet.Error{Op: op, Resource: string(on), Kind: fleet.KindNotFound,
		Err: fmt.Errorf("%s is not offered in %s", size, location)}
}

// Usages lists a region's quotas of vCPUs by their names in lower case.
func (c *Cloud) Usages(ctx context.Context, subscription, location string) (map[string]fleet.Usage, error) {
	on := fleet.ResourceID("/subscriptions/" + subscription + "/providers/Microsoft.Compute/locations/" + location + "/usages")
	usages := map[string]fleet.Usage{}
	err := list(ctx, c, c.address(on, computeVersion), func(u *usageAnswer) error {
		usages[strings.ToLower(u.Name.Value)] = fleet.Usage{Used: u.CurrentValue, Limit: u.Limit}
		return nil
	})
	return usages, failed(ctx, "list usages", on, err)
}

// usageAnswer is what is wanted of a Usage.
type usageAnswer struct {
	CurrentValue int64 `json:"currentValue"`
	Limit        int64 `json:"limit"`
	Name         struct {
		Value string `json:"value"`
	} `json:"name"`
}

// skuAnswer is what is wanted of a ResourceSKU.
type skuAnswer struct {
	ResourceType string   `json:"resourceType"`
	Name         string   `json:"name"`
	Locations    []string `json:"locations"`
	Family       string   `json:"family"`
	Capabilities []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"capabilities"`
}

func offered(sku *skuAnswer, location string) bool {
	for _, l := range sku.Locations {
		if fleet.SameRegion(l, location) {
			return true
		}
	}
	return len(sku.Locations) == 0
}

// streamSKUs reads one page and gives the address of the next. yield returns
// false to end the reading.
func (c *Cloud) streamSKUs(ctx context.Context, address string, yield func(*skuAnswer) bool) (next string, err error) {
	req, err := runtime.NewRequest(ctx, http.MethodGet, address)
	if err != nil {
		return "", err
	}
	req.Raw().Header.Set("Accept", "application/json")
	runtime.SkipBodyDownload(req)
	resp, err := c.raw.Pipeline().Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // read, or not wanted
	if !runtime.HasStatusCode(resp, http.StatusOK) {
		return "", runtime.NewResponseError(resp)
	}
	d := json.NewDecoder(resp.Body)
	if err := expect(d, '{'); err != nil {
		return "", err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", err
		}
		switch key {
		case "value":
			if err := expect(d, '['); err != nil {
				return "", err
			}
			for d.More() {
				var sku skuAnswer
				if err := d.Decode(&sku); err != nil {
					return "", err
				}
				if !yield(&sku) {
					return "", nil
				}
			}
			if err := expect(d, ']'); err != nil {
				return "", err
			}
		case "nextLink":
			var link *string
			if err := d.Decode(&link); err != nil {
				return "", err
			}
			next = text(link)
		default:
			var skip json.RawMessage
			if err := d.Decode(&skip); err != nil {
				return "", err
			}
		}
	}
	if err := expect(d, '}'); err != nil {
		return "", err
	}
	return next, nil
}

func expect(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	if t != want {
		return &json.UnmarshalTypeError{Value: fmt.Sprintf("%v", t), Offset: d.InputOffset()}
	}
	return nil
}

func sizeOf(sku *skuAnswer) fleet.SizeInfo {
	s := fleet.SizeInfo{Name: sku.Name, Family: sku.Family}
	list := func(v string) []string {
		var out []string
		for _, x := range strings.Split(v, ",") {
			if x = strings.TrimSpace(x); x != "" {
				out = append(out, x)
			}
		}
		return out
	}
	for _, k := range sku.Capabilities {
		switch v := k.Value; k.Name {
		case "CpuArchitectureType":
			s.Architecture = v
		case "HyperVGenerations":
			s.Generations = list(v)
		case "DiskControllerTypes":
			s.Controllers = list(v)
		case "vCPUs":
			s.VCPUs, _ = strconv.ParseInt(v, 10, 64) // 0 is not known
		case "MaxDataDiskCount":
			if n, err := strconv.ParseInt(v, 10, 32); err == nil {
				s.MaxDataDisks = int32(n)
			}
		}
	}
	if len(s.Controllers) == 0 {
		s.Controllers = []string{"SCSI"} // the catalogue names it only beside NVMe
	}
	return s
}
