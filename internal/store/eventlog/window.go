package eventlog

import (
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
)

// Log files are read through windows: stretches that are mapped once they are wholly written. A page
// is read from memory only if it was read from the file before, since the window was last dropped. So it
// is in the system's cache as a rule: whoever faults waits for the disk with a processor in
// his hands, since the scheduler knows of reads and not of faults.
const (
	windowSize = 4 << 20
	windowPage = 4 << 10
	// maxWindows bounds the mappings of a process, of which systems allow some 65,000. Beyond it, and
	// in the last stretch of a file, records are read from the file.
	maxWindows = 1 << 13
	// maxBlocks bounds what of them counts as our memory between two minutes, in blocks of 64 KiB, since that
	// is what a fault brings in at once. When there are more, all are given back.
	maxBlocks  = 1 << 10
	blockPages = 16
)

// mapped counts the windows of this process and their blocks that were touched.
var mapped struct{ windows, blocks atomic.Int64 }

// logWindow is one stretch of a log file.
type logWindow struct {
	m     Mapping
	known [windowSize / windowPage / 64]atomic.Uint64 // a bit a page that was read from the file since the last drop
	mu    sync.Mutex                                  // held to change known
	used  int64                                       // blocks of known pages
}

// logWindows are those of one file.
type logWindows struct {
	mu   sync.Mutex // held by whoever adds one
	list atomic.Pointer[[]*logWindow]
	off  atomic.Bool // mapping has failed
}

// find returns the window with that stretch and where in it that begins; nil if there is none.
func (ws *logWindows) find(l *logFile, off int64, n int) (w *logWindow, at int) {
	i, at := int(off/windowSize), int(off%windowSize)
	if !canMap || at+n > windowSize || int64(i+1)*windowSize > l.size.Load() {
		return nil, 0
	}
	if p := ws.list.Load(); p != nil && i < len(*p) && (*p)[i] != nil {
		return (*p)[i], at
	}
	return ws.add(l.f, i), at
}

func (ws *logWindows) add(f File, i int) *logWindow {
	if ws.off.Load() || mapped.windows.Load() >= maxWindows {
		return nil
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var list []*logWindow
	if p := ws.list.Load(); p != nil {
		list = slices.Clone(*p)
	}
	for len(list) <= i {
		list = append(list, nil)
	}
	if list[i] != nil {
		return list[i]
	}
	m, err := f.Map(int64(i)*windowSize, windowSize)
	if err != nil {
		ws.off.Store(true) // reading does as well
		return nil
	}
	mapped.windows.Add(1)
	list[i] = &logWindow{m: m}
	ws.list.Store(&list)
	return list[i]
}

// each calls fn for every window there is.
func (ws *logWindows) each(fn func(*logWindow)) {
	p := ws.list.Load()
	if p == nil {
		return
	}
	for _, w := range *p {
		if w != nil {
			fn(w)
		}
	}
}

// drop gives the memory of all windows back.
func (ws *logWindows) drop() { ws.each((*logWindow).drop) }

func (w *logWindow) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.used == 0 {
		return
	}
	mapped.blocks.Add(-w.used)
	w.used = 0
	for i := range w.known {
		w.known[i].Store(0)
	}
	w.m.Drop()
}

// close ends the mappings. Nobody reads any more.
func (ws *logWindows) close() {
	ws.each(func(w *logWindow) {
		mapped.blocks.Add(-w.used)
		mapped.windows.Add(-1)
		_ = w.m.Close() // an error would leave address space behind, no more
	})
	ws.list.Store(nil)
}

// knows says whether all pages of a stretch were read from the file.
func (w *logWindow) knows(at, n int) bool {
	for p := at / windowPage; p <= (at+n-1)/windowPage; p++ {
		if w.known[p/64].Load()>>(p%64)&1 == 0 {
			return false
		}
	}
	return true
}

func (w *logWindow) note(at, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := at / windowPage; p <= (at+n-1)/windowPage; p++ {
		old := w.known[p/64].Load()
		if old>>(p%64&^(blockPages-1))&(1<<blockPages-1) == 0 {
			w.used++
			mapped.blocks.Add(1)
		}
		w.known[p/64].Store(old | 1<<(p%64))
	}
}

// copy reads from memory. It returns false where the system cannot bring a page in, as after an error of
// the disk or when someone has cut the file short.
func (w *logWindow) copy(b []byte, at int) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { ok = recover() == nil }()
	copy(b, w.m.Data[at:])
	return true
}

// readAt fills b from an offset on.
func (l *logFile) readAt(b []byte, off int64) error {
	w, at := l.windows.find(l, off, len(b))
	if w != nil && w.knows(at, len(b)) && w.copy(b, at) {
		return nil
	}
	_, err := l.f.ReadAt(b, off)
	if err == nil && w != nil {
		w.note(at, len(b))
	}
	return err
}

// slim gives back the memory of mapped pages that were touched since the last time.
func (s *Store) slim() {
	n := s.snapshot()
	defer n.release()
	for _, seg := range n.v.disk {
		seg.m.Drop()
	}
	n.dropLogs()
}

func (n snapshot) dropLogs() {
	for _, f := range n.v.files {
		f.windows.drop()
	}
}
