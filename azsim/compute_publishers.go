package azsim

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// The marketplace has every publisher, offer and SKU, and each image has one version
// (platformImage): azsim has no lists of them, and of versions one element. What an image says
// of itself follows from its names.

const publishersPath = "Microsoft.Compute/locations/publishers"

func publisherTypes() []*resourceType {
	const offers = publishersPath + "/artifacttypes/offers"
	const types = publishersPath + "/artifacttypes/types"
	v := scaleSetVersions()
	out := []*resourceType{{name: offers + "/skus/versions", versions: v, list: listImageVersions, get: getImageVersion}}
	for _, name := range []string{publishersPath, offers, offers + "/skus", types, types + "/versions"} {
		out = append(out, &resourceType{name: name, versions: v, list: noMarketplaceList, get: noMarketplaceList})
	}
	return out
}

func noMarketplaceList(c *call) (*reply, error) {
	return nil, badRequest("NotSimulated",
		"azsim takes every publisher, offer, SKU and extension type, and has no lists of them. Ask for the versions of one image.")
}

// marketplaceImage is the image that the path names, in its region, with the id of the version.
func (c *call) marketplaceImage(version string) (img bootImage, location, id string, err error) {
	names := c.id.names
	l, known := c.s.location(names[0])
	if !known {
		id := c.id
		id.names = names[:1]
		return img, "", "", (&call{s: c.s, id: id, version: c.version}).knownLocation()
	}
	img, err = c.s.platformImage(&armcompute.ImageReference{Publisher: &names[1], Offer: &names[3], SKU: &names[4], Version: &version})
	if err != nil || !strings.EqualFold(names[2], "vmimage") {
		return img, "", "", refuse(http.StatusNotFound, "NotFound", "Artifact: VMImage was not found.")
	}
	id = "/Subscriptions/" + c.s.Subscription + "/Providers/Microsoft.Compute/Locations/" + l.Name + "/Publishers/" + names[1] +
		"/ArtifactTypes/VMImage/Offers/" + names[3] + "/Skus/" + names[4] + "/Versions/" + version
	return img, l.Name, id, nil
}

var orderByName = regexp.MustCompile(`(?i)^\s*name(\s+(asc|desc))?\s*$`)

// listImageVersions lists the one version; $top and $orderby change nothing of that.
func listImageVersions(c *call) (*reply, error) {
	if by := c.query("$orderby"); by != "" && !orderByName.MatchString(by) {
		return nil, badRequest("InvalidParameter", "The order '%s' is not supported. Only name asc and name desc are.", by)
	}
	if c.query("$filter") != "" {
		return nil, badRequest("NotSimulated", "azsim has no $filter for versions of images.")
	}
	_, location, id, err := c.marketplaceImage(platformLatest)
	if err != nil {
		return nil, err
	}
	return ok([]any{object{"location": location, "name": platformLatest, "id": id}}), nil
}

// automaticUpgrades are images whose scale sets can be upgraded automatically, by publisher
// and offer: the list of "Azure Virtual Machine Scale Set automatic OS image upgrades" in
// Azure's documentation as of 2026-05-19, and what it had in 2019 and has no more (the first
// two lines). Three of all are recorded.
var automaticUpgrades = map[string]string{
	"canonical:ubuntuserver": "16.04-lts 18.04-lts",
	"openlogic:centos":       "7.5",

	"canonical:0001-com-ubuntu-server-focal":  "20_04-lts 20_04-lts-gen2 20_04-lts-arm64",
	"canonical:ubuntu-24_04-lts":              "server-arm64",
	"canonical:0001-com-ubuntu-server-jammy":  "22_04-lts 22_04-lts-arm64 22_04-lts-gen2",
	"canonical:0001-com-ubuntu-pro-microsoft": "pro-fips-20_04-gen2",
	"microsoftcblmariner:cbl-mariner": "cbl-mariner-2 cbl-mariner-2-arm64 cbl-mariner-2-gen2 cbl-mariner-2-fips " +
		"cbl-mariner-2-gen2-fips",
	"microsoftcblmariner:azure-linux":   "azure-linux-gen2 azure-linux-3 azure-linux-arm64",
	"microsoftsqlserver:sql2017-ws2019": "enterprise",
	"microsoftsqlserver:sql2019-ws2022": "enterprise",
	"microsoftsqlserver:sql2022-ws2022": "enterprise-gen2",
	"microsoftwindowsserver:windowsserver": "2012-r2-datacenter 2016-datacenter 2016-datacenter-gensecond 2016-datacenter-gs " +
		"2016-datacenter-smalldisk 2016-datacenter-with-containers 2016-datacenter-with-containers-gs " +
		"2019-datacenter 2019-datacenter-core 2019-datacenter-core-smalldisk 2019-datacenter-core-with-containers " +
		"2019-datacenter-gensecond 2019-datacenter-gs 2019-datacenter-smalldisk 2019-datacenter-with-containers " +
		"2019-datacenter-with-containers-gs 2022-datacenter 2022-datacenter-smalldisk 2022-datacenter-azure-edition " +
		"2022-datacenter-azure-edition-core 2022-datacenter-azure-edition-core-smalldisk 2022-datacenter-core " +
		"2022-datacenter-core-smalldisk 2022-datacenter-g2 2022-datacenter-smalldisk-g2 " +
		"datacenter-core-20h2-with-containers-smalldisk-gs",
}

// vhdFooter are the bytes that end a VHD, which an image's size includes (as recorded).
const vhdFooter = 512

// getImageVersion describes a version as recorded: an image of generation 1 is not managed
// yet. Whether one supports hibernation is not simulated; it says that it does not.
func getImageVersion(c *call) (*reply, error) {
	version := c.id.name()
	if strings.EqualFold(version, "latest") {
		version = "" // no version's name
	}
	img, location, id, err := c.marketplaceImage(version)
	if err != nil {
		return nil, err
	}
	publisher, offer, sku := c.id.names[1], c.id.names[3], c.id.names[4]
	system := armcompute.OperatingSystemTypesLinux
	if strings.HasPrefix(strings.ToLower(publisher), "microsoftwindows") {
		system = armcompute.OperatingSystemTypesWindows
	}
	disk := object{"operatingSystem": system, "sizeInGb": img.sizeGB}
	features := []any{}
	feature := func(name, value string) { features = append(features, object{"name": name, "value": value}) }
	if img.security != "" {
		feature("SecurityType", img.security)
	}
	feature("IsAcceleratedNetworkSupported", "True")
	feature("DiskControllerTypes", strings.ReplaceAll(img.controllers, ",", ", "))
	feature("IsHibernateSupported", "False")
	p := object{
		"hyperVGeneration": img.generation, "architecture": img.arch, "features": features, "osDiskImage": disk, "dataDiskImages": []any{},
		"automaticOSUpgradeProperties": object{"automaticOSUpgradeSupported": slices.Contains(
			strings.Fields(automaticUpgrades[strings.ToLower(publisher+":"+offer)]), strings.ToLower(sku))},
		"imageDeprecationStatus": object{"imageState": "Active"},
	}
	if img.generation == "V1" {
		p["replicaType"], p["disallowed"] = "Unmanaged", object{"vmDiskType": "None"}
		disk["sizeInBytes"] = int64(img.sizeGB)<<30 + vhdFooter
	} else {
		p["replicaType"], p["replicaCount"], p["disallowed"] = "Managed", 10, object{"vmDiskType": "Unmanaged"}
	}
	return ok(object{"location": location, "name": version, "id": id, "properties": p}), nil
}
