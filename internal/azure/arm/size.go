package arm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/ortet/ortet/internal/fleet"
)

// skuVersion is the API version of the SDK's ResourceSKUsClient.
const skuVersion = "2021-07-01"

const lookUpSize = "look up a VM size"

func skusOf(subscription string) fleet.ResourceID {
	return fleet.ResourceID("/subscriptions/" + subscription + "/providers/Microsoft.Compute/skus")
}

// Size says what a VM size can do in a region.
func (c *Cloud) Size(ctx context.Context, subscription, location, size string) (fleet.SizeInfo, error) {
	found, err := c.Sizes(ctx, subscription, location, size)
	if err != nil {
		return fleet.SizeInfo{}, err
	}
	if info, ok := found[strings.ToLower(size)]; ok {
		return info, nil
	}
	return fleet.SizeInfo{}, &fleet.Error{Op: lookUpSize, Resource: string(skusOf(subscription)), Kind: fleet.KindNotFound,
		Err: fmt.Errorf("%s is not offered in %s", size, location)}
}

// Sizes says what VM sizes can do in a region, by their names in lower case; what is not
// offered is missing. The catalogue of a region has several megabytes, so it is read as
// a stream that ends with the last size found.
func (c *Cloud) Sizes(ctx context.Context, subscription, location string, sizes ...string) (map[string]fleet.SizeInfo, error) {
	const op = lookUpSize
	on, missing, all := skusOf(subscription), map[string]bool{}, map[string]fleet.SizeInfo{}
	for _, size := range sizes {
		missing[strings.ToLower(size)] = true
	}
	if !fleet.ValidName(subscription) {
		return nil, failed(ctx, op, on, &fleet.Error{Kind: fleet.KindInvalid, Err: fmt.Errorf("%q is no subscription", subscription)})
	}
	if strings.ContainsAny(location, "'") {
		return nil, failed(ctx, op, on, &fleet.Error{Kind: fleet.KindInvalid, Err: fmt.Errorf("%q is no region", location)})
	}
	q := url.Values{"api-version": {skuVersion}, "$filter": {"location eq '" + location + "'"}}
	next := runtime.JoinPaths(c.raw.Endpoint(), "/subscriptions/"+url.PathEscape(subscription)+"/providers/Microsoft.Compute/skus") +
		"?" + strings.ReplaceAll(q.Encode(), "+", "%20")
	for n := 0; next != "" && len(missing) > 0; n++ {
		if n == maxPages {
			return nil, endless(op, on)
		}
		var err error
		next, err = c.streamSKUs(ctx, next, func(sku *skuAnswer) bool {
			if name := strings.ToLower(sku.Name); missing[name] && strings.EqualFold(sku.ResourceType, "virtualMachines") && among(sku.Locations, location) {
				all[name] = sizeOf(sku, location)
				delete(missing, name)
			}
			return len(missing) > 0
		})
		if err != nil {
			return nil, failed(ctx, op, on, err)
		}
	}
	return all, nil
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
	LocationInfo []struct {
		Location string   `json:"location"`
		Zones    []string `json:"zones"`
	} `json:"locationInfo"`
	Restrictions []struct {
		Type       string `json:"type"` // "Location", or "Zone"
		ReasonCode string `json:"reasonCode"`
		Info       struct {
			Locations []string `json:"locations"`
			Zones     []string `json:"zones"`
		} `json:"restrictionInfo"`
	} `json:"restrictions"`
}

// among reports whether a region is one of a list, of which an empty one is all regions.
func among(locations []string, location string) bool {
	return len(locations) == 0 || slices.ContainsFunc(locations, func(l string) bool { return fleet.SameRegion(l, location) })
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

func sizeOf(sku *skuAnswer, location string) fleet.SizeInfo {
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
		case "GPUs":
			s.GPUs, _ = strconv.ParseInt(v, 10, 64)
		case "LowPriorityCapable":
			s.NoSpot = strings.EqualFold(v, "False")
		case "MaxResourceVolumeMB":
			s.NoTempDisk = v == "0"
		case "MaxDataDiskCount":
			if n, err := strconv.ParseInt(v, 10, 32); err == nil {
				s.MaxDataDisks = int32(n)
			}
		}
	}
	for _, in := range sku.LocationInfo {
		if fleet.SameRegion(in.Location, location) {
			s.Zones = in.Zones
		}
	}
	for _, r := range sku.Restrictions {
		switch {
		case !among(r.Info.Locations, location):
		case strings.EqualFold(r.Type, "Zone"):
			s.Zones = slices.DeleteFunc(s.Zones, func(z string) bool { return slices.Contains(r.Info.Zones, z) })
		default:
			s.Restricted = cmp.Or(r.ReasonCode, "restricted")
		}
	}
	if len(s.Controllers) == 0 {
		s.Controllers = []string{"SCSI"} // the catalogue names it only beside NVMe
	}
	return s
}
