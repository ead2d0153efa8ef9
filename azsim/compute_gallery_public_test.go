package azsim

import (
	"strings"
	"testing"
	"time"
)

// An image of a community or shared gallery is found by its public name, while it is shared,
// and machines are made of it.
func TestPublicGallery(t *testing.T) {
	const (
		gallery = "Microsoft.Compute/galleries/g"
		image   = gallery + "/images/i"
		version = "2022-03-03"
	)
	for _, c := range []struct{ kind, profile, share, member string }{
		{"communityGalleries", `{"permissions":"Community","communityGalleryInfo":{"publisherUri":"u","publisherContact":"c","eula":"e",
			"publicNamePrefix":"pub"}}`, `{"operationType":"EnableCommunity"}`, "communityGalleryImageId"},
		{"sharedGalleries", `{"permissions":"Groups"}`, `{"operationType":"Add","groups":[{"type":"Subscriptions","ids":["` +
			DefaultSubscription + `"]}]}`, "sharedGalleryImageId"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			withNIC(t, func(b *bench) {
				body := b.made("PUT", gallery, version, `{"location":"westeurope","properties":{"sharingProfile":`+c.profile+`}}`)
				name := text(body, "properties", "identifier", "uniqueName")
				if names, _ := at(body, "properties", "sharingProfile", "communityGalleryInfo", "publicNames").([]any); len(names) > 0 {
					name = names[0].(string)
				}
				b.made("PUT", image, version, `{"location":"westeurope","properties":{"osType":"Linux","osState":"Generalized","hyperVGeneration":"V2",
					"identifier":{"publisher":"p","offer":"o","sku":"s"}}}`)
				b.made("PUT", serverPath, machineVersion, machineBody(""))
				b.made("POST", serverPath+"/deallocate", machineVersion, "")
				b.made("POST", serverPath+"/generalize", machineVersion, "")
				b.made("PUT", image+"/versions/1.0.0", version, `{"location":"westeurope","properties":{"storageProfile":{"source":{"virtualMachineId":"`+
					groupID(serverPath)+`"}}}}`)
				time.Sleep(time.Hour)
				b.made("DELETE", serverPath, machineVersion, "")
				b.made("DELETE", "Microsoft.Compute/disks/server-os", "2022-07-02", "")

				below := "/subscriptions/" + DefaultSubscription + "/providers/Microsoft.Compute/locations/westeurope/" + c.kind + "/" + name
				id := "/" + strings.ToUpper(c.kind[:1]) + c.kind[1:] + "/" + name + "/Images/i"
				before, after, _ := strings.Cut(machineBody(""), `"publisher":"Debian","offer":"debian-12","sku":"12-gen2","version":"latest"`)
				machine := before + `"` + c.member + `":"` + id + `"` + after
				b.refused("ResourceNotFound", "GET", below+"/images/i", version, "")
				b.refused("GalleryImageNotFound", "PUT", serverPath, machineVersion, machine)

				b.made("POST", gallery+"/share", version, c.share)
				b.shows(b.get(below+"/images/i", version), map[string]string{"identifier.uniqueId": id, "properties.hyperVGeneration": "V2"})
				b.shows(b.get(below+"/images/i/versions", version), map[string]string{
					"value.0.identifier.uniqueId": id + "/Versions/1.0.0", "value.0.properties.storageProfile.osDiskImage.diskSizeGB": "30",
				})
				b.refused("ResourceNotFound", "GET", strings.Replace(below, "westeurope", "northeurope", 1)+"/images/i/versions/1.0.0", version, "")
				b.refused("NotSimulated", "GET", below[:strings.LastIndexByte(below, '/')], version, "")
				b.made("PUT", serverPath, machineVersion, machine)
				b.shows(b.get(serverPath, machineVersion), map[string]string{
					"properties.storageProfile.imageReference." + c.member: id, "properties.storageProfile.imageReference.exactVersion": "1.0.0",
				})
				b.shows(b.get("Microsoft.Compute/disks/server-os", "2022-07-02"), map[string]string{
					"properties.creationData.galleryImageReference." + c.member: id,
				})
				b.made("POST", gallery+"/share", version, `{"operationType":"Reset"}`)
				b.refused("ResourceNotFound", "GET", below+"/images/i", version, "")
			})
		})
	}
}
