package catalog

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// Currency and VATRate of all prices.
const (
	Currency = "EUR"
	VATRate  = "19.000000"
)

// Locations returns all locations.
func Locations() []schema.Location {
	return []schema.Location{
		{ID: 1, Name: "fsn1", Description: "Falkenstein DC Park 1", Country: "DE", City: "Falkenstein", Latitude: 50.47612, Longitude: 12.370071, NetworkZone: "eu-central"},
		{ID: 2, Name: "nbg1", Description: "Nuremberg DC Park 1", Country: "DE", City: "Nuremberg", Latitude: 49.452102, Longitude: 11.076665, NetworkZone: "eu-central"},
		{ID: 3, Name: "hel1", Description: "Helsinki DC Park 1", Country: "FI", City: "Helsinki", Latitude: 60.169855, Longitude: 24.938379, NetworkZone: "eu-central"},
		{ID: 4, Name: "ash", Description: "Ashburn, VA", Country: "US", City: "Ashburn, VA", Latitude: 39.045821, Longitude: -77.487073, NetworkZone: "us-east"},
		{ID: 5, Name: "hil", Description: "Hillsboro, OR", Country: "US", City: "Hillsboro, OR", Latitude: 45.54222, Longitude: -122.951924, NetworkZone: "us-west"},
		{ID: 6, Name: "sin", Description: "Singapore", Country: "SG", City: "Singapore", Latitude: 1.283333, Longitude: 103.833333, NetworkZone: "ap-southeast"},
	}
}

// LocationByName finds a location.
func LocationByName(name string) (schema.Location, bool) {
	return find(Locations(), func(l schema.Location) bool { return l.Name == name })
}

// Zones are the network zones.
func Zones() []string {
	var zs []string
	for _, l := range Locations() {
		if !slices.Contains(zs, l.NetworkZone) {
			zs = append(zs, l.NetworkZone)
		}
	}
	return zs
}

var (
	europe   = []string{"fsn1", "nbg1", "hel1"}
	overseas = []string{"ash", "hil", "sin"}
	anywhere = append(slices.Clone(europe), overseas...)
)

// size is one server type. Net prices are per month, Europe and elsewhere.
type size struct {
	id          int64
	name        string
	category    string
	cpu, arch   string
	cores       int
	memory      float32
	disk        int
	locations   []string
	soldOut     []string // in these of the locations
	eu, over    string
	announced   string // deprecation, "" for none
	unavailable string
}

const (
	cheap     = "Cost-Optimized"
	regular   = "Regular Performance"
	dedicated = "General Purpose"
)

func sizes() []size {
	const gen2, gen2end = "2025-10-16", "2025-12-31"
	return []size{
		{id: 22, name: "cpx11", category: regular, cpu: "shared", arch: "x86", cores: 2, memory: 2, disk: 40, locations: anywhere, soldOut: europe, eu: "4.35", over: "6.99", announced: gen2, unavailable: gen2end},
		{id: 23, name: "cpx21", category: regular, cpu: "shared", arch: "x86", cores: 3, memory: 4, disk: 80, locations: anywhere, soldOut: europe, eu: "7.55", over: "11.99", announced: gen2, unavailable: gen2end},
		{id: 24, name: "cpx31", category: regular, cpu: "shared", arch: "x86", cores: 4, memory: 8, disk: 160, locations: anywhere, soldOut: europe, eu: "13.60", over: "21.99", announced: gen2, unavailable: gen2end},
		{id: 45, name: "cax11", category: cheap, cpu: "shared", arch: "arm", cores: 2, memory: 4, disk: 40, locations: europe, eu: "5.99"},
		{id: 93, name: "cax21", category: cheap, cpu: "shared", arch: "arm", cores: 4, memory: 8, disk: 80, locations: europe, eu: "9.99"},
		{id: 94, name: "cax31", category: cheap, cpu: "shared", arch: "arm", cores: 8, memory: 16, disk: 160, locations: europe, eu: "19.49"},
		{id: 95, name: "cax41", category: cheap, cpu: "shared", arch: "arm", cores: 16, memory: 32, disk: 320, locations: europe, eu: "37.99"},
		{id: 96, name: "ccx13", category: dedicated, cpu: "dedicated", arch: "x86", cores: 2, memory: 8, disk: 80, locations: anywhere, eu: "42.99", over: "46.99"},
		{id: 97, name: "ccx23", category: dedicated, cpu: "dedicated", arch: "x86", cores: 4, memory: 16, disk: 160, locations: anywhere, eu: "85.99", over: "92.99"},
		{id: 98, name: "ccx33", category: dedicated, cpu: "dedicated", arch: "x86", cores: 8, memory: 32, disk: 240, locations: anywhere, eu: "138.49", over: "149.99"},
		{id: 99, name: "ccx43", category: dedicated, cpu: "dedicated", arch: "x86", cores: 16, memory: 64, disk: 360, locations: anywhere, eu: "275.99", over: "298.99"},
		{id: 104, name: "cx22", category: cheap, cpu: "shared", arch: "x86", cores: 2, memory: 4, disk: 40, locations: europe, soldOut: europe, eu: "3.79", announced: gen2, unavailable: gen2end},
		{id: 105, name: "cx32", category: cheap, cpu: "shared", arch: "x86", cores: 4, memory: 8, disk: 80, locations: europe, soldOut: europe, eu: "6.80", announced: gen2, unavailable: gen2end},
		{id: 109, name: "cpx22", category: regular, cpu: "shared", arch: "x86", cores: 2, memory: 4, disk: 80, locations: append(slices.Clone(europe), "sin"), eu: "19.49", over: "21.49"},
		{id: 110, name: "cpx32", category: regular, cpu: "shared", arch: "x86", cores: 4, memory: 8, disk: 160, locations: append(slices.Clone(europe), "sin"), eu: "35.49", over: "38.99"},
		{id: 111, name: "cpx42", category: regular, cpu: "shared", arch: "x86", cores: 8, memory: 16, disk: 320, locations: append(slices.Clone(europe), "sin"), eu: "69.49", over: "76.49"},
		{id: 112, name: "cpx52", category: regular, cpu: "shared", arch: "x86", cores: 12, memory: 24, disk: 480, locations: append(slices.Clone(europe), "sin"), eu: "100.49", over: "110.49"},
		{id: 113, name: "cpx62", category: regular, cpu: "shared", arch: "x86", cores: 16, memory: 32, disk: 640, locations: append(slices.Clone(europe), "sin"), eu: "129.99", over: "142.99"},
		{id: 114, name: "cx23", category: cheap, cpu: "shared", arch: "x86", cores: 2, memory: 4, disk: 40, locations: europe, eu: "5.49"},
		{id: 115, name: "cx33", category: cheap, cpu: "shared", arch: "x86", cores: 4, memory: 8, disk: 80, locations: europe, eu: "8.49"},
		{id: 116, name: "cx43", category: cheap, cpu: "shared", arch: "x86", cores: 8, memory: 16, disk: 160, locations: europe, eu: "15.99"},
		{id: 117, name: "cx53", category: cheap, cpu: "shared", arch: "x86", cores: 16, memory: 32, disk: 320, locations: europe, soldOut: []string{"nbg1"}, eu: "29.49"},
	}
}

const tebibyte = 1 << 40

// ServerTypes returns all server types.
func ServerTypes() []schema.ServerType { return serverTypes() }

var serverTypes = sync.OnceValue(buildServerTypes)

func buildServerTypes() []schema.ServerType {
	var out []schema.ServerType
	for _, s := range sizes() {
		t := schema.ServerType{
			ID: s.id, Name: s.name, Description: strings.ToUpper(s.name), Category: s.category,
			Cores: s.cores, Memory: s.memory, Disk: s.disk, StorageType: "local", CPUType: s.cpu, Architecture: s.arch,
		}
		dep := deprecation(s.announced, s.unavailable)
		t.Deprecated, t.Deprecation = dep != nil, dep //nolint:staticcheck // the API still sends it
		for _, name := range s.locations {
			loc, _ := LocationByName(name)
			gone := slices.Contains(s.soldOut, name)
			t.Locations = append(t.Locations, schema.ServerTypeLocation{
				ID: loc.ID, Name: name, Available: !gone, Recommended: !gone && dep == nil && s.category != dedicated,
				DeprecatableResource: schema.DeprecatableResource{Deprecation: dep},
			})
			monthly, traffic, perTB := s.eu, uint64(20*tebibyte), "1.00"
			if slices.Contains(overseas, name) {
				monthly, traffic = s.over, tebibyte
				if name == "sin" {
					perTB = "7.40"
				}
			}
			t.Prices = append(t.Prices, schema.PricingServerTypePrice{
				Location: name, PriceHourly: hourly(monthly), PriceMonthly: price(monthly),
				IncludedTraffic: traffic, PricePerTBTraffic: price(perTB),
			})
		}
		out = append(out, t)
	}
	return out
}

// ServerType finds a server type by ID or name.
func ServerType(id int64, name string) (schema.ServerType, bool) {
	return find(ServerTypes(), func(t schema.ServerType) bool { return t.ID == id && id != 0 || t.Name == name && name != "" })
}

// LoadBalancerTypes returns all load balancer types.
func LoadBalancerTypes() []schema.LoadBalancerType { return loadBalancerTypes() }

var loadBalancerTypes = sync.OnceValue(buildLoadBalancerTypes)

func buildLoadBalancerTypes() []schema.LoadBalancerType {
	var out []schema.LoadBalancerType
	for i, s := range []struct {
		name                    string
		conns, services, target int
		certs                   int
		eu, over                string
		traffic                 uint64
	}{
		{"lb11", 10000, 5, 25, 10, "7.49", "8.49", 20},
		{"lb21", 20000, 15, 75, 25, "21.49", "24.49", 20},
		{"lb31", 40000, 30, 150, 50, "42.49", "48.49", 20},
	} {
		t := schema.LoadBalancerType{
			ID: int64(i + 1), Name: s.name, Description: strings.ToUpper(s.name), MaxConnections: s.conns,
			MaxServices: s.services, MaxTargets: s.target, MaxAssignedCertificates: s.certs,
		}
		for _, name := range anywhere {
			monthly, traffic := s.eu, s.traffic*tebibyte
			if slices.Contains(overseas, name) {
				monthly, traffic = s.over, tebibyte
			}
			t.Prices = append(t.Prices, schema.PricingLoadBalancerTypePrice{
				Location: name, PriceHourly: hourly(monthly), PriceMonthly: price(monthly),
				IncludedTraffic: traffic, PricePerTBTraffic: price("1.00"),
			})
		}
		out = append(out, t)
	}
	return out
}

// LoadBalancerType finds a load balancer type by ID or name.
func LoadBalancerType(id int64, name string) (schema.LoadBalancerType, bool) {
	return find(LoadBalancerTypes(), func(t schema.LoadBalancerType) bool {
		return t.ID == id && id != 0 || t.Name == name && name != ""
	})
}

// Pricing returns the price list.
func Pricing() schema.Pricing { return pricing() }

var pricing = sync.OnceValue(buildPricing)

func buildPricing() schema.Pricing {
	p := schema.Pricing{
		Currency: Currency, VATRate: VATRate,
		Image:        schema.PricingImage{PricePerGBMonth: price("0.0143")},
		FloatingIP:   schema.PricingFloatingIP{PriceMonthly: price("3.00")}, //nolint:staticcheck // the API still sends it
		Traffic:      schema.PricingTraffic{PricePerTB: price("0.00")},      //nolint:staticcheck // the API still sends it
		ServerBackup: schema.PricingServerBackup{Percentage: "20.0000000000"},
		Volume:       schema.PricingVolume{PricePerGBPerMonth: price("0.0572")},
	}
	for _, kind := range []string{"ipv4", "ipv6"} {
		float, prim := "3.00", "0.50"
		if kind == "ipv6" {
			float, prim = "1.00", "0.00"
		}
		f := schema.PricingFloatingIPType{Type: kind}
		q := schema.PricingPrimaryIP{Type: kind}
		for _, l := range anywhere {
			f.Prices = append(f.Prices, schema.PricingFloatingIPTypePrice{Location: l, PriceMonthly: price(float)})
			q.Prices = append(q.Prices, schema.PricingPrimaryIPTypePrice{Location: l, PriceHourly: hourly(prim), PriceMonthly: price(prim)})
		}
		p.FloatingIPs = append(p.FloatingIPs, f)
		p.PrimaryIPs = append(p.PrimaryIPs, q)
	}
	for _, t := range ServerTypes() {
		p.ServerTypes = append(p.ServerTypes, schema.PricingServerType{ID: t.ID, Name: t.Name, Prices: t.Prices})
	}
	for _, t := range LoadBalancerTypes() {
		p.LoadBalancerTypes = append(p.LoadBalancerTypes, schema.PricingLoadBalancerType{ID: t.ID, Name: t.Name, Prices: t.Prices})
	}
	return p
}

// IDs of the images the lab has from the start. Debian's is the real cloud's.
const (
	DebianID   = 114690387
	SnapshotID = 300000001
)

// SnapshotLabel is the label by which the filled snapshot is found, and by which
// the lab, unlike the real cloud, also takes a snapshot where an image name is
// asked for.
const SnapshotLabel = "name"

// Images returns the lab's images. A snapshot has no name, as on the real cloud.
func Images() []schema.Image { return images() }

var images = sync.OnceValue(buildImages)

func buildImages() []schema.Image {
	at := func(s string) *time.Time { t, _ := time.Parse(time.DateOnly, s); return &t }
	str := func(s string) *string { return &s }
	size := float32(1.1)
	return []schema.Image{
		{
			ID: DebianID, Status: "available", Type: "system", Name: str("debian-12"), Description: "Debian 12", DiskSize: 5,
			Created: at("2023-06-13"), OSFlavor: "debian", OSVersion: str("12"), Architecture: "x86", RapidDeploy: true,
			Labels: map[string]string{},
		},
		{
			ID: SnapshotID, Status: "available", Type: "snapshot", Description: "hk-snapshot", ImageSize: &size, DiskSize: 40,
			Created: at("2026-12-01"), CreatedFrom: &schema.ImageCreatedFrom{ID: 1, Name: "hk-snapshot"},
			OSFlavor: "debian", OSVersion: str("12"), Architecture: "x86",
			Labels: map[string]string{SnapshotLabel: "hk-snapshot"},
		},
	}
}

// Image finds an image by ID, name or, for a snapshot, its label name=….
func Image(id int64, name string) (schema.Image, bool) {
	return find(Images(), func(i schema.Image) bool {
		return i.ID == id && id != 0 || name != "" && ImageName(i) == name
	})
}

// ImageName is the name of an image's base root.
func ImageName(i schema.Image) string {
	if i.Name != nil {
		return *i.Name
	}
	return i.Labels[SnapshotLabel]
}

func find[T any](all []T, ok func(T) bool) (T, bool) {
	if i := slices.IndexFunc(all, ok); i >= 0 {
		return all[i], true
	}
	var zero T
	return zero, false
}

func deprecation(announced, unavailable string) *schema.DeprecationInfo {
	if announced == "" {
		return nil
	}
	a, _ := time.Parse(time.DateOnly, announced)
	u, _ := time.Parse(time.DateOnly, unavailable)
	return &schema.DeprecationInfo{Announced: a, UnavailableAfter: u}
}

// price is a net amount with its gross one, in the API's ten decimals.
func price(net string) schema.Price {
	n, ok := new(big.Rat).SetString(net)
	if !ok {
		panic(fmt.Sprintf("bug: price %q", net))
	}
	gross := new(big.Rat).Mul(n, big.NewRat(119, 100))
	return schema.Price{Net: n.FloatString(10), Gross: gross.FloatString(16)}
}

// hourly is a monthly price by the hour; a month is billed for at most 624 hours.
func hourly(monthly string) schema.Price {
	n, ok := new(big.Rat).SetString(monthly)
	if !ok {
		panic(fmt.Sprintf("bug: price %q", monthly))
	}
	return price(new(big.Rat).Quo(n, big.NewRat(624, 1)).FloatString(4))
}
