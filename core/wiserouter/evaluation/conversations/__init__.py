"""Simulated conversations: agents and chats over providers with prompt caches, under a budget."""
