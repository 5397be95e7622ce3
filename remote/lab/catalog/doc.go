// Package catalog is what the lab's cloud sells: locations, server and load
// balancer types with their availability and prices, and its system images, as of
// December 2026. Availability, IDs and net prices follow public lists of that
// autumn as well as they could be had; what hk reads of them is names, sizes,
// availability, deprecation and the order of prices, not the last cent.
//
// What it returns is shared: nobody may change it.
package catalog
