package recipe

const (
	accountType = "Microsoft.Storage/storageAccounts"
	shareType   = "Microsoft.Storage/storageAccounts/fileServices/shares"
)

// shareQuotaGB is a share's limit; a share of the Standard tier costs what it holds.
const shareQuotaGB = 1024

func (r *renderer) storage() Deployment {
	s := r.c.Spec.Storage
	var all []any
	if !s.Existing {
		all = append(all, with(r.tagged(resource(accountType, s.Account, storageAPI, object{
			"supportsHttpsTrafficOnly": true, // SMB 3 with encryption; no effect on port 445
			"minimumTlsVersion":        "TLS1_2",
			"allowBlobPublicAccess":    false,
			// Machines mount the share by a key, which each reads with its identity.
			"allowSharedKeyAccess": true,
		})), object{"kind": "StorageV2", "sku": object{"name": "Standard_LRS"}}))
	}
	for _, name := range s.Shares {
		share := object{
			"type": shareType, "name": s.Account + "/default/" + name, "apiVersion": storageAPI,
			"properties": object{"shareQuota": shareQuotaGB, "accessTier": "TransactionOptimized"},
		}
		if !s.Existing {
			share["dependsOn"] = list(expression(idOf(accountType, s.Account)))
		}
		all = append(all, share)
	}
	for _, name := range []string{ServerIdentity, AgentIdentity} {
		identity := r.tagged(resource(identityType, name, identityAPI, nil))
		delete(identity, "properties")
		all = append(all, identity)
	}
	all = append(all, r.roles(scopeAccount)...)
	return Deployment{Group: r.c.Spec.Groups.Storage, Template: template(object{}, all, object{}), Parameters: object{}}
}
