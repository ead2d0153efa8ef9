package arm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/fleet"
)

func extensionOf(e *extensionAnswer) fleet.Extension {
	x := fleet.Extension{Name: e.Name}
	if p := e.Properties; p != nil {
		x.Publisher = p.Publisher
		x.Type = p.Type
		x.Version = p.TypeHandlerVersion
		if len(p.ProvisionAfterExtensions) > 0 {
			x.After = p.ProvisionAfterExtensions
		}
		x.AutoUpgradeMinorVersion, x.AutomaticUpgrade = p.AutoUpgradeMinorVersion, p.EnableAutomaticUpgrade
		x.ForceUpdateTag, x.SuppressFailures = p.ForceUpdateTag, p.SuppressFailures
		x.Settings = fleet.NewSecret(canonical(p.Settings))
		if k := p.ProtectedSettingsFromKeyVault; k != nil {
			x.KeyVault = &fleet.KeyVaultSecret{URL: k.SecretURL, Vault: fleet.ResourceID(k.SourceVault.ID)}
		}
		x.HasProtectedSettings = x.KeyVault != nil || usesProtectedSettings(x.Type)
	}
	return x
}

// usesProtectedSettings names the extension types that are of little use
// without protected settings: they hold the command to run, or its secrets.
func usesProtectedSettings(typ string) bool {
	switch strings.ToLower(typ) {
	case "customscript", "customscriptforlinux", "customscriptextension",
		"capz.linux.bootstrapping", "capz.windows.bootstrapping",
		"vmaccessforlinux", "omsagentforlinux", "azuremonitorlinuxagent", "linuxdiagnostic", "keyvaultforlinux":
		return true
	}
	return false
}

// canonical returns JSON without spaces and with sorted keys, so that two reads compare;
// "" for null.
func canonical(data json.RawMessage) string {
	var v any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if d.Decode(&v) != nil || v == nil {
		return ""
	}
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}

// writeExtension sends all of an extension: what is absent in a PUT is none, or Azure's
// default.
func (c *Cloud) writeExtension(ctx context.Context, ch fleet.WriteExtension) (fleet.Token, error) {
	p, err := c.at(ch.Target(), typeScaleSet+"/extensions")
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Target(), err)
	}
	x := ch.Extension
	properties := &armcompute.VirtualMachineScaleSetExtensionProperties{
		Publisher: ptr(x.Publisher), Type: ptr(x.Type), TypeHandlerVersion: orNil(x.Version),
		AutoUpgradeMinorVersion: orNil(x.AutoUpgradeMinorVersion), EnableAutomaticUpgrade: orNil(x.AutomaticUpgrade),
		ForceUpdateTag: orNil(x.ForceUpdateTag), SuppressFailures: orNil(x.SuppressFailures),
	}
	for _, name := range x.After {
		properties.ProvisionAfterExtensions = append(properties.ProvisionAfterExtensions, ptr(name))
	}
	if k := x.KeyVault; k != nil {
		properties.ProtectedSettingsFromKeyVault = &armcompute.KeyVaultSecretReference{SecretURL: ptr(k.URL), SourceVault: &armcompute.SubResource{ID: ptr(string(k.Vault))}}
	}
	for _, s := range []struct {
		from fleet.Secret
		into *any
	}{{x.Settings, &properties.Settings}, {ch.Protected, &properties.ProtectedSettings}} {
		text := s.from.Reveal()
		switch {
		case text == "":
		case !json.Valid([]byte(text)):
			return "", &fleet.Error{Op: ch.Verb(), Resource: string(ch.Target()), Kind: fleet.KindInvalid, Err: errors.New("its settings are not JSON")}
		default:
			*s.into = json.RawMessage(text)
		}
	}
	op, err := p.NewVirtualMachineScaleSetExtensionsClient().BeginCreateOrUpdate(ctx, p.group, p.names[0], p.names[1],
		armcompute.VirtualMachineScaleSetExtension{Properties: properties}, nil)
	return begun(ctx, ch, op, err)
}

func (c *Cloud) deleteExtension(ctx context.Context, ch fleet.DeleteExtension) (fleet.Token, error) {
	p, err := c.at(ch.Target(), typeScaleSet+"/extensions")
	if err != nil {
		return "", failed(ctx, ch.Verb(), ch.Target(), err)
	}
	op, err := p.NewVirtualMachineScaleSetExtensionsClient().BeginDelete(ctx, p.group, p.names[0], p.names[1], nil)
	return gone(begun(ctx, ch, op, err))
}
