package live

import (
	_ "embed" // prices.json
	"encoding/json"
	"fmt"
	"time"
)

//go:embed prices.json
var pricesFile []byte

// storageGiB is at most what the run's disks, snapshots and image versions hold at a time, of
// images with disks of 30 GiB: of each check's two pools a few copies, kept to the end.
const storageGiB = 1200

// prices are list prices with their dates.
type prices struct {
	VM struct {
		Size       string  `json:"size"`
		VCPUs      int     `json:"vCPUs"`
		USDPerHour float64 `json:"usdPerHour"`
		AsOf       string  `json:"asOf"`
	} `json:"vm"`
	Storage struct {
		USDPerGiBAndMonth float64 `json:"usdPerGiBAndMonth"`
	} `json:"storage"`
	Network struct {
		USDPerHour float64 `json:"usdPerHour"`
	} `json:"network"`
}

func readPrices() (p prices, err error) {
	if err = json.Unmarshal(pricesFile, &p); err == nil && min(p.VM.USDPerHour, p.Storage.USDPerGiBAndMonth, p.Network.USDPerHour) <= 0 {
		err = fmt.Errorf("no price of %q, of storage or of the network", p.VM.Size)
	}
	if err != nil {
		return p, fmt.Errorf("cannot read test/live/prices.json: %w", err)
	}
	return p, nil
}

// limit is what a run of so many instances costs at most, in USD.
func (p prices) limit(instances int, gateway bool, longest time.Duration) float64 {
	perHour := float64(instances)*p.VM.USDPerHour + storageGiB*p.Storage.USDPerGiBAndMonth/(30*24)
	if gateway {
		perHour += p.Network.USDPerHour
	}
	return longest.Hours() * perHour
}
