/** The open connections. Components that follow the same run or session share one, and it ends after the last of them. */

import { Store, connect, type Audience, type Connection, type State, type Token } from "@proscenium/client";

export interface Place {
  base?: string;
  token: Token;
  audience: Audience;
  transport: "sse" | "websocket";
}

/** What is followed: a run, a session or the lists. */
export type Target = { run: string } | { session: string } | { lists: { attention?: boolean; sessions?: boolean; limit?: number } };

/** An entry of a list, as the server pushes it. */
export type Entry = Record<string, unknown>;

type Listener = () => void;

/** One followed target. Its functions can be passed on alone. */
export class Source {
  readonly store = new Store();
  #open: () => Connection;
  #connection: Connection | undefined;
  #state: State | undefined;
  #users = 0;
  #listeners = new Set<Listener>();
  #lists = { attention: new Map<string, Entry>(), sessions: new Map<string, Entry>() };
  /** The entries as arrays, which stay the same until a list changes. */
  #entries: { attention: Entry[]; sessions: Entry[]; isHydrated: boolean } = { attention: [], sessions: [], isHydrated: false };
  #isHydrated = false;

  constructor(place: Place, target: Target) {
    this.#open = () => connect({ ...place, ...target }, this.store);
  }

  /** Follows the target as long as anything subscribes, and calls the listener when the connection's state or a list changes. */
  subscribe = (listener: Listener): (() => void) => {
    const own = () => listener();
    this.#listeners.add(own);
    this.#users += 1;
    if (!this.#connection) this.#start();
    return () => {
      this.#listeners.delete(own);
      this.#users -= 1;
      // React unsubscribes and subscribes again in one go, in its strict mode and when a component moves.
      setTimeout(() => this.#users === 0 && this.#stop());
    };
  };

  getState = (): State | undefined => this.#state;

  getEntries = () => this.#entries;

  #start() {
    const connection = this.#open();
    this.#connection = connection;
    this.#state = connection.state;
    connection.subscribe((state) => {
      // Counts change with each frame; a component shows how the connection is.
      const isSame = state.kind === this.#state?.kind && state.why === this.#state.why;
      this.#state = state;
      if (!isSame) this.#notify();
    });
    connection.listen((frame) => this.#take(frame as unknown as { frame: string; list: "attention" | "sessions"; op: string; key: string; entry?: Entry }));
  }

  #stop() {
    this.#connection?.close();
    this.#connection = undefined;
    this.#state = undefined;
    this.store.clear();
    this.#lists.attention.clear();
    this.#lists.sessions.clear();
    this.#isHydrated = false;
    this.#publish();
  }

  #take({ frame, list, op, key, entry }: { frame: string; list: "attention" | "sessions"; op: string; key: string; entry?: Entry }) {
    if (frame === "List") {
      if (op === "remove") this.#lists[list].delete(key);
      else this.#lists[list].set(key, entry ?? {});
      if (!this.#isHydrated) return;
    } else if (frame === "Hydrated") this.#isHydrated = true;
    else return;
    this.#publish();
    this.#notify();
  }

  #publish() {
    this.#entries = { attention: [...this.#lists.attention.values()], sessions: [...this.#lists.sessions.values()], isHydrated: this.#isHydrated };
  }

  #notify() {
    for (const listener of [...this.#listeners]) listener();
  }
}

export class Sources {
  #sources = new Map<string, Source>();

  constructor(readonly place: Place) {}

  /** The source of a target: the same one for each component. */
  of(target: Target): Source {
    const key = JSON.stringify(target);
    const known = this.#sources.get(key);
    if (known) return known;
    const source = new Source(this.place, target);
    this.#sources.set(key, source);
    return source;
  }
}
