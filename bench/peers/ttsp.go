// Go's stop of the world, with goroutines that run and with parked ones.
//
// Go 1.19 has no measure of its own for reaching a stop, so this times
// runtime.ReadMemStats, which stops the world, reads counters and lets it go:
// from the request until it is done. With 0 busy goroutines that is what the
// reading itself costs.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"time"
)

const interval = 5 * time.Millisecond

var sink uint64

func beBusy() {
	value := uint64(1)
	for {
		// No call, so it stops by a signal: Go has no polls in loops.
		for i := 0; i < 1000; i++ {
			value = value*31 + 7
		}
		if value == 0 {
			sink = value
		}
	}
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: ttsp busy|parked COUNT SECONDS")
		os.Exit(2)
	}
	count, err1 := strconv.Atoi(os.Args[2])
	seconds, err2 := strconv.ParseFloat(os.Args[3], 64)
	if err1 != nil || err2 != nil {
		fmt.Fprintln(os.Stderr, "COUNT and SECONDS are numbers")
		os.Exit(2)
	}
	debug.SetGCPercent(-1) // no other stops
	never := make(chan bool)
	for i := 0; i < count; i++ {
		if os.Args[1] == "busy" {
			go beBusy()
		} else {
			go func() { <-never }()
		}
	}
	time.Sleep(200 * time.Millisecond)

	// The samples are few enough to be kept, without allocating on the way.
	nanos := make([]int64, 0, 1<<20)
	var stats runtime.MemStats
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for time.Now().Before(end) && len(nanos) < cap(nanos) {
		time.Sleep(interval)
		begin := time.Now()
		runtime.ReadMemStats(&stats)
		nanos = append(nanos, time.Since(begin).Nanoseconds())
	}
	if len(nanos) == 0 {
		fmt.Println("0 - - - no stop was made")
		return
	}
	sort.Slice(nanos, func(a, b int) bool { return nanos[a] < nanos[b] })
	quantile := func(q float64) float64 {
		return float64(nanos[int(q*float64(len(nanos)-1))]) / 1e3
	}
	fmt.Printf("%d %.1f %.1f %.1f\n", len(nanos), quantile(0.5), quantile(0.99),
		quantile(1))
}
