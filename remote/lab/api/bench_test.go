package api_test

import (
	"fmt"
	"net/http"
	"testing"

	"hk/remote/lab/api"
	"hk/remote/lab/state"
)

// BenchmarkList is GET /servers?per_page=50 with 200 servers; at most 10 ms is wanted.
func BenchmarkList(b *testing.B) {
	store, err := state.Open("")
	if err != nil {
		b.Fatal(err)
	}
	err = store.Update(func(tx *state.Tx) error {
		for i := range 200 {
			id := tx.NewID()
			state.Put(tx, tx.Servers, id, &state.Server{
				Meta: state.Meta{ID: id, Project: "p", Name: fmt.Sprintf("s%d", i), Labels: map[string]string{"i": fmt.Sprint(i)}},
				Type: "cx23", Location: "fsn1", ImageID: 114690387, Slot: 10 + i,
			})
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	a := api.New(api.Config{Store: store, Backend: newFake(), Tokens: []api.Token{{ID: "t", Secret: secret, Project: "p"}}})
	defer a.Close()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "/v1/servers?per_page=50", nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	b.ResetTimer()
	for range min(b.N, 3000) { // the rate limit acts here, too
		a.ServeHTTP(discard{http.Header{}}, req)
	}
}
